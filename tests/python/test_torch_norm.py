"""rlk.torch's RMSNorm family. Skipped without torch."""

import pytest

import rlk

torch = pytest.importorskip("torch", reason="torch is not installed")

import rlk.torch  # noqa: E402

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
OPS = ["rms_norm", "qwen3_next_rms_norm", "rms_norm_gated"]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


@pytest.fixture(autouse=True)
def default_client(request):
    if "client" in request.fixturenames:
        rlk.set_default_client(request.getfixturevalue("client"))
    yield
    rlk.set_default_client(None)


def make(dtype, *shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype).requires_grad_()


def leaves(op, dtype, *shape):
    names = {"x": make(dtype, *shape), "weight": make(dtype, shape[-1], seed=1)}
    if op == "rms_norm_gated":
        names["gate"] = make(dtype, *shape, seed=2)
    return names


def reference(op, x, weight, gate=None):
    y = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
    y = y * (weight + 1 if op == "qwen3_next_rms_norm" else weight)
    return y if gate is None else y * gate * torch.sigmoid(gate)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_autograd(client, op, dtype):
    inputs = leaves(op, dtype, 3, 4, 160)
    grad = make(dtype, 3, 4, 160, seed=7).detach()
    y = getattr(rlk.torch, op)(**inputs)
    assert y.dtype == dtype and y.requires_grad
    y.backward(grad)
    wide = {name: t.detach().double().requires_grad_() for name, t in inputs.items()}
    expected = reference(op, **wide)
    expected.backward(grad.double())
    limits = dict(rtol=TOLERANCE[dtype], atol=3 * TOLERANCE[dtype])
    torch.testing.assert_close(y.double(), expected, **limits)
    for name, tensor in inputs.items():
        assert tensor.grad.dtype == dtype and tensor.grad.shape == tensor.shape
        torch.testing.assert_close(tensor.grad.double(), wide[name].grad, **limits)
    # The bits of the direct call.
    plain = {name: t.detach() for name, t in inputs.items()}
    direct = client.call(op + ".backward", grad_y=grad, **plain)
    for name, tensor in inputs.items():
        assert torch.equal(tensor.grad, getattr(direct, "grad_" + name))


@pytest.mark.parametrize("op", OPS)
def test_only_what_needs_a_gradient_is_computed(client, op):
    for wanted in leaves(op, torch.float32, 2, 8):
        inputs = leaves(op, torch.float32, 2, 8)
        for name, tensor in inputs.items():
            tensor.requires_grad_(name == wanted)
        getattr(rlk.torch, op)(**inputs).sum().backward()
        assert {n for n, t in inputs.items() if t.grad is not None} == {wanted}


def test_contract_and_offset_reach_both_directions(client):
    inputs = leaves("rms_norm", torch.bfloat16, 5, 32)
    grad = make(torch.bfloat16, 5, 32, seed=9).detach()
    rlk.torch.rms_norm(**inputs, contract="rms_norm/hf-v1").backward(grad)
    plain = {name: t.detach() for name, t in inputs.items()}
    direct = client.call("rms_norm.backward", contract="rms_norm/hf-v1", grad_y=grad, **plain)
    assert torch.equal(inputs["weight"].grad, direct.grad_weight)
    with pytest.raises(rlk.InvalidArgumentError, match="weight_offset"):
        rlk.torch.rms_norm(**inputs, weight_offset=1.0, contract="rms_norm/hf-v1")


@pytest.mark.parametrize("op", OPS)
def test_second_order_is_refused(client, op):
    inputs = leaves(op, torch.float32, 2, 8)
    y = getattr(rlk.torch, op)(**inputs)
    (grad,) = torch.autograd.grad(y.sum(), inputs["x"], create_graph=True)
    with pytest.raises(RuntimeError, match="first-order"):
        grad.sum().backward()


@pytest.mark.skipif(
    not hasattr(torch.library, "custom_op"), reason="this torch has no torch.library.custom_op"
)
@pytest.mark.parametrize("op", OPS)
def test_compiles_without_a_graph_break(client, op):
    inputs = leaves(op, torch.float32, 4, 24)
    function = getattr(rlk.torch, op)
    expected = function(**inputs)
    compiled = torch.compile(lambda **kw: function(**kw), fullgraph=True, backend="aot_eager")
    y = compiled(**inputs)
    assert torch.equal(y, expected)
    y.sum().backward()
    grads = {name: t.grad.clone() for name, t in inputs.items()}
    for tensor in inputs.values():
        tensor.grad = None
    expected.sum().backward()
    for name, tensor in inputs.items():
        assert torch.equal(grads[name], tensor.grad)
