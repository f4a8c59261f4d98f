"""rlk.torch.adaln_projection_3mod against torch's own functions. Skipped without torch."""

import pytest

import rlk

torch = pytest.importorskip("torch", reason="torch is not installed")

import rlk.torch  # noqa: E402

ROWS, WIDTH, DEPTH = 4, 5, 24


@pytest.fixture(autouse=True)
def default_client(request):
    if "client" in request.fixturenames:
        rlk.set_default_client(request.getfixturevalue("client"))
    yield
    rlk.set_default_client(None)


def leaves(dtype):
    generator = torch.Generator().manual_seed(3)

    def make(*shape, scale=1.0, dtype=torch.float32):
        values = torch.randn(*shape, generator=generator) * scale
        return values.to(dtype).requires_grad_()

    return (make(ROWS, DEPTH, scale=2.0), make(18 * WIDTH, DEPTH, scale=0.3, dtype=dtype),
            make(18 * WIDTH, dtype=dtype))


def reference(temb, weight, bias):
    act = torch.nn.functional.silu(temb)
    act = act + (act.to(weight.dtype).float() - act).detach()
    table = torch.nn.functional.linear(act, weight.float(), bias.float())
    return table.reshape(3 * ROWS, 6 * WIDTH).split(WIDTH, dim=1)


@pytest.mark.parametrize("dtype,tolerance", [(torch.float32, 1e-4), (torch.bfloat16, 3e-2)])
def test_values_and_gradients_are_torchs(client, dtype, tolerance):
    inputs = leaves(dtype)
    views = rlk.torch.adaln_projection_3mod(*inputs)
    expected = reference(*inputs)
    assert len(views) == 6
    for got, want in zip(views, expected):
        assert got.shape == (3 * ROWS, WIDTH) and got.dtype == dtype
        torch.testing.assert_close(got.float(), want, rtol=tolerance, atol=tolerance)
    grads = [torch.randn(3 * ROWS, WIDTH).to(dtype) for _ in views]
    got = torch.autograd.grad(views, inputs, grads)
    want = torch.autograd.grad(expected, inputs, [g.float() for g in grads])
    for a, b, leaf in zip(got, want, inputs):
        assert a.dtype == leaf.dtype
        torch.testing.assert_close(a.float(), b.float(), rtol=tolerance, atol=tolerance)


def test_only_what_is_needed_is_computed(client):
    temb, weight, bias = leaves(torch.float32)
    views = rlk.torch.adaln_projection_3mod(temb, weight.detach(), bias.detach())
    (grad,) = torch.autograd.grad(views[3].sum(), [temb])
    assert grad.shape == temb.shape and bool(grad.isfinite().all())
