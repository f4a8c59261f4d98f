"""rlk.torch and torch tensors in calls. Skipped without torch."""

import gc

import emulation
import ml_dtypes
import numpy as np
import pytest
from conftest import ROOT

import rlk

torch = pytest.importorskip("torch", reason="torch is not installed")

import rlk.torch  # noqa: E402
from rlk import _torch_norm, _torch_operator  # noqa: E402

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


def test_the_callers_storage_can_still_be_resized(client):
    x = make(torch.float32, 8)
    client.call(FORWARD, x=x)
    storage = x.untyped_storage() if hasattr(x, "untyped_storage") else x.storage()
    storage.resize_(0)  # raises where it cannot


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
def test_schemas_change_with_their_names():
    # torch.compile keeps backward graphs on disk under the names of forward operators: where a line
    # changes, so must the number in all names, or old graphs call new operators.
    found = {str(s) for s in torch._C._jit_get_all_schemas() if s.name.startswith("rlk::")}
    golden = (ROOT / "tests" / "golden" / "torch_schemas.txt").read_text().splitlines()
    assert found == set(golden)


@pytest.mark.parametrize("gated", [False, True])
def test_functions_of_older_torch_give_the_same(client, gated):
    """Both ways of making an operator, whichever this torch takes."""
    makers = [_torch_operator._make_function]
    if rlk.torch.HAS_CUSTOM_OP:
        makers.append(lambda op: _torch_norm._norm)
    results = []
    for maker in makers:
        leaves = [make(torch.float32, 3, 8).requires_grad_(), make(torch.float32, 8, seed=1)]
        gate = make(torch.float32, 3, 8, seed=2).requires_grad_() if gated else None
        op = "rms_norm_gated" if gated else "rms_norm"
        call = (op, 1e-6, 0.0, "silu" if gated else "", "", "", client.key)
        y, rstd = maker(_torch_norm._NORM)(*leaves, gate, *call)
        inputs = [leaves[0], gate] if gated else [leaves[0]]
        grads = torch.autograd.grad(y.sum(), inputs, create_graph=True)
        with pytest.raises(RuntimeError, match="first-order"):
            grads[0].sum().backward()
        results.append([y, rstd, *grads])
    for one, other in zip(results[0], results[-1]):
        assert torch.equal(one, other)


@needs_custom_op
def test_vmap_calls_once_for_each_element(client):
    x, weight = make(torch.float32, 3, 4, 8).requires_grad_(), make(torch.float32, 3, 8, seed=1)

    def norm(one, row):
        return rlk.torch.rms_norm(one, row, client=client)

    if not hasattr(torch.library, "register_vmap"):
        pytest.skip(f"torch {torch.__version__} has no rules of vmap for custom operators")
    y = torch.vmap(norm)(x, weight)
    (grad,) = torch.autograd.grad(y.square().sum(), x)
    expected = torch.stack([norm(*pair) for pair in zip(x, weight)])
    assert torch.equal(y, expected)
    assert torch.equal(grad, torch.autograd.grad(expected.square().sum(), x)[0])


def jvp(function, x):
    return torch.func.jvp(function, (x,), (torch.ones_like(x),))


def jacfwd(function, x):
    return torch.func.jacfwd(function)(x)


def dual(function, x):
    with torch.autograd.forward_ad.dual_level():
        return function(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))


def compiled_jvp(function, x):
    if not _torch_operator._COMPILES_TANGENTS:
        pytest.skip(f"torch {torch.__version__} may not trace the question for a tangent")
    return torch.compile(lambda value: jvp(function, value), backend="aot_eager")(x)


@needs_custom_op
@pytest.mark.parametrize("needs_grad", [False, True])
@pytest.mark.parametrize("mode", [jvp, jacfwd, dual, compiled_jvp], ids=lambda m: m.__name__)
def test_forward_mode_is_refused(client, mode, needs_grad):
    # Torch's own rule for a custom operator is a tangent of zeros, and no word.
    weight = make(torch.float32, 8, seed=1)
    functions = [
        lambda x: rlk.torch.final_logit_softcap(x, 30.0),
        lambda x: rlk.torch.rms_norm(x, weight),
        lambda x: rlk.torch.rms_norm_gated(weight.expand(3, 8), weight, x),
        lambda x: rlk.torch.det_linear(weight.expand(3, 8), x),
    ]
    for function in functions:
        x = make(torch.float32, 3, 8).requires_grad_(needs_grad)
        assert function(x).isfinite().all()
        with pytest.raises(RuntimeError, match="forward-mode"):
            mode(function, x)


@needs_custom_op
def test_opcheck(client):
    x = make(torch.float32, 3, 5).requires_grad_()
    arguments = (x, 20.0, torch.float32, "", "", 0)
    torch.library.opcheck(torch.ops.rlk.final_logit_softcap_v2.default, arguments)
    detached = x.detach()
    arguments = (detached, detached, [True], 20.0, torch.float32, "", "", 0)
    torch.library.opcheck(torch.ops.rlk.final_logit_softcap_backward_v2.default, arguments)


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
