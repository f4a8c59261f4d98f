"""rlk.torch and torch tensors in calls. Skipped without torch."""

import gc

import emulation
import ml_dtypes
import numpy as np
import pytest

import rlk

torch = pytest.importorskip("torch", reason="torch is not installed")

import rlk.torch  # noqa: E402

FORWARD, BACKWARD = "final_logit_softcap.forward", "final_logit_softcap.backward"
DTYPES = [torch.float32, torch.float16, torch.bfloat16]

needs_custom_op = pytest.mark.skipif(
    not rlk.torch.HAS_CUSTOM_OP, reason=f"torch {torch.__version__} has no torch.library.custom_op"
)


@pytest.fixture(autouse=True)
def default_client(request):
    if "client" in request.fixturenames:
        rlk.set_default_client(request.getfixturevalue("client"))
    yield
    rlk.set_default_client(None)


def to_numpy(tensor):
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def make(dtype, *shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=generator) * 40).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_torch_in_torch_out(client, dtype):
    x = make(dtype, 5, 37)
    result = client.call(FORWARD, x=x, softcap=20.0, output_dtype=dtype, digests=True)
    assert isinstance(result.y, torch.Tensor)
    assert result.y.dtype == dtype and result.y.device == x.device and result.y.is_contiguous()
    expected = emulation.forward(to_numpy(x), 20.0, to_numpy(x).dtype)
    assert to_numpy(result.y).tobytes() == expected.tobytes()
    assert result.report.input_digests["x"] == rlk.digest(x) == rlk.digest(to_numpy(x))


VIEWS = {
    "0-d": lambda x: x[0, 0, 0],
    "empty": lambda x: x[:0],
    "transposed": lambda x: x.transpose(0, 2),
    "expanded": lambda x: x[:1].expand(6, -1, -1),
    "narrow": lambda x: x[:, 1:3, ::2],
    "parameter": lambda x: torch.nn.Parameter(x),
    "offset": lambda x: x[2:],
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("view", VIEWS)
def test_views(client, view, dtype):
    x = VIEWS[view](make(dtype, 4, 5, 6))
    y = client.call(FORWARD, x=x).y
    assert tuple(y.shape) == tuple(x.shape)
    expected = emulation.forward(np.ascontiguousarray(to_numpy(x)).reshape(tuple(x.shape)), 30.0)
    assert to_numpy(y).tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_nan_payloads_are_untouched(client, dtype):
    bits = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16)
    x = bits.clone().view(dtype)
    report = client.call(FORWARD, x=x, digests=True).report
    numpy_dtype = ml_dtypes.bfloat16 if dtype == torch.bfloat16 else np.float16
    assert report.input_digests["x"] == rlk.digest(bits.numpy().view(numpy_dtype))
    assert torch.equal(x.view(torch.int16), bits)


def test_one_library_a_call(client):
    x = make(torch.float32, 3)
    with pytest.raises(rlk.InvalidArgumentError, match="one library"):
        client.call(BACKWARD, x=x, grad_y=x.numpy())
    for bad in (x.to(torch.complex64), x.to_sparse(), x.to(torch.int8), x.to("meta")):
        with pytest.raises(rlk.InvalidArgumentError) as caught:
            client.call(FORWARD, x=bad)
        assert caught.value.field == "x"


def reference(x, softcap, grad):
    """y and grad_x by torch's own autograd in FP64."""
    wide = x.detach().double().requires_grad_()
    y = softcap * torch.tanh(wide / softcap)
    (grad_x,) = torch.autograd.grad(y, wide, grad.double())
    return y.detach(), grad_x


@pytest.mark.parametrize("output", ["f32", "same"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_autograd(client, dtype, output):
    output_dtype = torch.float32 if output == "f32" else dtype
    x = make(dtype, 6, 33).t().requires_grad_()
    before = x.detach().clone()
    y = rlk.torch.final_logit_softcap(x, 20.0, output_dtype=output_dtype)
    assert y.dtype == output_dtype and y.shape == x.shape and y.requires_grad
    grad = make(output_dtype, *y.shape, seed=3)
    y.backward(grad)
    assert x.grad.dtype == dtype
    assert torch.equal(before, x.detach())
    # Bits: the gradient is that of the contract.
    dense = np.ascontiguousarray(to_numpy(x))
    expected = emulation.backward(dense, np.ascontiguousarray(to_numpy(grad)), 20.0)
    assert to_numpy(x.grad.contiguous()).tobytes() == expected.tobytes()
    # Values: those of torch's autograd in FP64, up to the casts of 16-bit results.
    y64, grad64 = reference(x, 20.0, grad)
    eps = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 1e-2}
    atol = 1e-6 * grad.double().abs().clamp(min=1)
    assert ((y.detach().double() - y64).abs() <= eps[output_dtype] * y64.abs() + 1e-6).all()
    assert ((x.grad.double() - grad64).abs() <= atol + eps[dtype] * grad64.abs()).all()


def test_gradient_against_finite_differences(client):
    # Central differences in FP64 of the reference formula; the server computes the gradient.
    x = torch.linspace(-50, 50, 101, requires_grad=True)
    rlk.torch.final_logit_softcap(x, 20.0).sum().backward()
    wide, step = x.detach().double(), 1e-5
    slope = 20 * (torch.tanh((wide + step) / 20) - torch.tanh((wide - step) / 20)) / (2 * step)
    assert (x.grad.double() - slope).abs().max() < 1e-6


def test_through_a_layer(client):
    torch.manual_seed(0)
    layer = torch.nn.Linear(8, 16)
    hidden = torch.randn(4, 8)
    rlk.torch.final_logit_softcap(layer(hidden) * 30, 20.0).logsumexp(-1).sum().backward()
    got = layer.weight.grad.clone()
    layer.weight.grad = None
    logits = layer(hidden) * 30
    (20.0 * torch.tanh(logits / 20.0)).logsumexp(-1).sum().backward()
    assert torch.allclose(got, layer.weight.grad, rtol=1e-4, atol=1e-5)


def test_no_gradient_where_none_is_asked(client):
    x = make(torch.float32, 3)
    assert not rlk.torch.final_logit_softcap(x).requires_grad
    with torch.no_grad():
        assert not rlk.torch.final_logit_softcap(x.requires_grad_()).requires_grad


def test_second_order_is_refused(client):
    x = make(torch.float32, 3).requires_grad_()
    y = rlk.torch.final_logit_softcap(x)
    (grad,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="first-order"):
        grad.sum().backward()


def test_server_errors_come_through(client):
    x = make(torch.float32, 3)
    with pytest.raises(rlk.InvalidArgumentError) as caught:
        rlk.torch.final_logit_softcap(x, 0.0)
    assert caught.value.field == "softcap"
    with pytest.raises(rlk.InvalidArgumentError):
        rlk.torch.final_logit_softcap(x, contract="nothing")
    assert torch.equal(
        rlk.torch.final_logit_softcap(x, backend="cpu"), rlk.torch.final_logit_softcap(x)
    )


def test_clients(server):
    x = make(torch.float32, 3)
    rlk.set_default_client(None)
    with pytest.raises(rlk.FailedPreconditionError, match="set_default_client"):
        rlk.torch.final_logit_softcap(x)
    first, second = rlk.connect(server.tcp), rlk.connect(server.unix)
    assert first.key != second.key
    for one in (first, second):
        assert rlk.torch.final_logit_softcap(x, client=one).shape == x.shape
        one.close()
    with pytest.raises(rlk.FailedPreconditionError, match="closed"):
        rlk.torch.final_logit_softcap(x, client=first)
    # Graphs name clients by key: they keep none alive.
    leaf = x.clone().requires_grad_()
    third = rlk.connect(server.tcp)
    y = rlk.torch.final_logit_softcap(leaf, client=third)
    del third
    gc.collect()
    with pytest.raises(rlk.FailedPreconditionError, match="does not exist"):
        y.sum().backward()


@needs_custom_op
def test_opcheck(client):
    x = make(torch.float32, 3, 5).requires_grad_()
    arguments = (x, 20.0, torch.float32, "", "", 0)
    torch.library.opcheck(torch.ops.rlk.final_logit_softcap.default, arguments)
    detached = x.detach()
    arguments = (detached, detached, 20.0, "", "", 0)
    torch.library.opcheck(torch.ops.rlk.final_logit_softcap_backward.default, arguments)


@needs_custom_op
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_compile_without_a_graph_break(client, dtype, backend):
    def function(value):
        return rlk.torch.final_logit_softcap(value * 2, 20.0, client=client) + 1

    compiled = torch.compile(function, fullgraph=True, backend=backend)
    for shape in ((4, 5), (3, 7)):  # the second may come with dynamic sizes
        eager = make(dtype, *shape).requires_grad_()
        leaf = eager.detach().clone().requires_grad_()
        expected, got = function(eager), compiled(leaf)
        assert torch.equal(expected, got)
        expected.sum().backward()
        got.sum().backward()
        assert torch.equal(eager.grad, leaf.grad)


def test_gpu_tensors_come_back_to_their_gpu(client):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    x = make(torch.bfloat16, 4, 9).cuda().requires_grad_()
    y = rlk.torch.final_logit_softcap(x)
    assert y.device == x.device
    y.sum().backward()
    assert x.grad.device == x.device
    assert torch.equal(y.cpu(), rlk.torch.final_logit_softcap(x.detach().cpu()))
