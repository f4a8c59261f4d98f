"""rlk.torch's det_linear, timestep_mlp_fp32 and timestep_sinusoid_h3. Skipped without torch."""

import pytest

import rlk

torch = pytest.importorskip("torch", reason="torch is not installed")

import rlk.torch  # noqa: E402


@pytest.fixture(autouse=True)
def default_client(request):
    if "client" in request.fixturenames:
        rlk.set_default_client(request.getfixturevalue("client"))
    yield
    rlk.set_default_client(None)


def make(*shape, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=generator) * scale).requires_grad_()


def linear_leaves():
    return {
        "x": make(3, 4, 36),
        "weight": make(17, 36, seed=1, scale=0.3),
        "bias": make(17, seed=2),
    }


def mlp_leaves():
    return {
        "x": make(5, 36),
        "w1": make(20, 36, seed=1, scale=0.3),
        "b1": make(20, seed=2),
        "w2": make(17, 20, seed=3, scale=0.4),
        "b2": make(17, seed=4),
    }


def linear_reference(x, weight, bias, activation="none"):
    y = torch.nn.functional.linear(x, weight, bias)
    return torch.nn.functional.silu(y) if activation == "silu" else y


def mlp_reference(x, w1, b1, w2, b2):
    return linear_reference(linear_reference(x, w1, b1, "silu"), w2, b2)


def compare(ours, theirs, leaves):
    """Value and gradients of `ours(**leaves)` beside `theirs(**leaves)` in FP64."""
    y = ours(**leaves)
    grad = make(*y.shape, seed=9).detach()
    y.backward(grad)
    wide = {name: t.detach().double().requires_grad_() for name, t in leaves.items()}
    expected = theirs(**wide)
    expected.backward(grad.double())
    torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-4)
    for name, tensor in leaves.items():
        assert tensor.grad.dtype == tensor.dtype and tensor.grad.shape == tensor.shape
        torch.testing.assert_close(tensor.grad.double(), wide[name].grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("activation", ["none", "silu"])
def test_linear(client, activation):
    compare(
        lambda **leaves: rlk.torch.det_linear(activation=activation, **leaves),
        lambda **leaves: linear_reference(activation=activation, **leaves),
        linear_leaves(),
    )


def test_linear_without_bias_and_transposed(client):
    x, weight = make(36, 6), make(36, 17, seed=1)
    y = rlk.torch.det_linear(x.t(), weight.t())
    grad = make(6, 17, seed=2).detach()
    y.backward(grad)
    torch.testing.assert_close(x.grad, (grad @ weight.detach().t()).t(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(weight.grad, (grad.t() @ x.detach().t()).t(), rtol=1e-4, atol=1e-4)


def test_mlp(client):
    compare(rlk.torch.timestep_mlp_fp32, mlp_reference, mlp_leaves())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_sinusoid(client, dtype):
    t = torch.linspace(0, 1, 5).to(dtype).requires_grad_()
    embedding = rlk.torch.timestep_sinusoid_h3(t, 64)
    grad = make(5, 64).detach()
    embedding.backward(grad)
    wide = t.detach().double().requires_grad_()
    angles = wide[:, None] * 10000.0 ** (-torch.arange(32).double() / 32)
    expected = torch.cat([angles.cos(), angles.sin()], dim=-1)
    expected.backward(grad.double())
    torch.testing.assert_close(embedding.double(), expected, rtol=1e-6, atol=1e-6)
    assert t.grad.dtype == dtype
    limit = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(t.grad.double(), wide.grad, rtol=limit, atol=limit)


@pytest.mark.parametrize(
    "function, leaves",
    [
        (rlk.torch.det_linear, linear_leaves),
        (rlk.torch.timestep_mlp_fp32, mlp_leaves),
    ],
)
def test_only_what_needs_a_gradient_is_computed(client, function, leaves):
    for wanted in leaves():
        inputs = leaves()
        for name, tensor in inputs.items():
            tensor.requires_grad_(name == wanted)
        function(**inputs).sum().backward()
        assert [name for name, t in inputs.items() if t.grad is not None] == [wanted]
    plain = {name: t.detach() for name, t in leaves().items()}
    assert not function(**plain).requires_grad


def test_gradients_of_gradients_are_refused(client):
    leaves = linear_leaves()
    y = rlk.torch.det_linear(**leaves)
    (grad,) = torch.autograd.grad(y.sum(), leaves["x"], create_graph=True)
    with pytest.raises(RuntimeError, match="gradients of gradients"):
        grad.sum().backward()


def test_errors_name_the_argument(client):
    with pytest.raises(rlk.InvalidArgumentError) as error:
        rlk.torch.timestep_sinusoid_h3(torch.tensor([1000.0]))
    assert error.value.field == "timestep"
    with pytest.raises(rlk.InvalidArgumentError) as error:
        leaves = mlp_leaves()
        leaves["w1"] = leaves["w1"].bfloat16()
        rlk.torch.timestep_mlp_fp32(**leaves)
    assert error.value.field == "w1"


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (2, 3, 0), (0, 36), (2, 0, 36)])
def test_the_server_names_what_is_wrong_with_a_shape(client, shape):
    with pytest.raises(rlk.InvalidArgumentError) as error:
        rlk.torch.det_linear(torch.ones(shape), make(17, 36))
    assert error.value.reason == "SHAPE_MISMATCH"
    assert error.value.field in ("x", "weight")


def test_a_vector_is_one_row(client):
    leaves = linear_leaves()
    row = leaves["x"][0, 0]
    y = rlk.torch.det_linear(row, leaves["weight"])
    assert torch.equal(y, rlk.torch.det_linear(row[None], leaves["weight"])[0])


def test_channels_are_a_whole_number(client):
    with pytest.raises(TypeError):
        rlk.torch.timestep_sinusoid_h3(torch.tensor([0.5]), 8.9)


@pytest.mark.skipif(not hasattr(torch.library, "custom_op"), reason="torch before 2.4")
def test_compiles_without_a_graph_break(client):
    def model(x, w1, b1, w2, b2, t):
        hidden = x + rlk.torch.timestep_sinusoid_h3(t, 36)
        return rlk.torch.timestep_mlp_fp32(hidden, w1, b1, w2, b2).sum() * 2

    t = torch.linspace(0, 1, 5)
    eager, compiled = mlp_leaves(), mlp_leaves()
    model(**eager, t=t).backward()
    torch.compile(model, fullgraph=True, backend="aot_eager")(**compiled, t=t).backward()
    for name, tensor in eager.items():
        assert torch.equal(tensor.grad, compiled[name].grad)
