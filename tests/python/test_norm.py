"""The RMSNorm family through a server: values, gradients, carries and refusals."""

import ml_dtypes
import numpy as np
import pytest

import rlk

BF16 = ml_dtypes.bfloat16
DTYPES = [np.float32, np.float16, BF16]
EPS = 1e-6


def make(dtype, *shape, seed=0, scale=1.0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def reference(x, w, dy=None, offset=0.0, gate=None, act="silu"):
    """y, and grad_x, grad_weight and grad_gate, in FP64."""
    x, w = x.astype(np.float64), w.astype(np.float64) + offset
    r = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + EPS)
    xh = x * r
    a = slope = 1.0
    if gate is not None:
        z = gate.astype(np.float64)
        s = sigmoid(z)
        a, slope = (s, s * (1 - s)) if act == "sigmoid" else (z * s, s * (1 + z * (1 - s)))
    y = xh * w * a
    if dy is None:
        return y
    dy = dy.astype(np.float64)
    g = dy * a * w
    grad_x = r * (g - xh * (g * xh).mean(-1, keepdims=True))
    axes = tuple(range(x.ndim - 1))
    return y, grad_x, (dy * a * xh).sum(axes), dy * xh * w * slope


def close(actual, expected, dtype):
    tolerance = {np.float32: 1e-5, np.float16: 2e-3, BF16: 2e-2}[dtype]
    np.testing.assert_allclose(
        actual.astype(np.float64), expected, rtol=tolerance, atol=tolerance * 3
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("op", ["rms_norm", "qwen3_next_rms_norm", "rms_norm_gated"])
def test_values_and_gradients(client, op, dtype):
    x, w, dy = make(dtype, 2, 5, 300), make(dtype, 300, seed=1), make(dtype, 2, 5, 300, seed=2)
    gate = make(dtype, 2, 5, 300, seed=3) if op == "rms_norm_gated" else None
    offset = 1.0 if op == "qwen3_next_rms_norm" else 0.0
    y, grad_x, grad_w, grad_gate = reference(x, w, dy, offset, gate)
    forward, backward = getattr(rlk, op), getattr(rlk, op + "_backward")
    inputs = (x, w) if gate is None else (x, w, gate)
    result = forward(client, *inputs, wanted=("y", "rstd"))
    assert result.y.shape == x.shape and result.y.dtype == dtype
    assert result.rstd.shape == (2, 5) and result.rstd.dtype == np.float32
    assert result.report.contract == f"{op}/leftfold-v1"
    close(result.y, y, dtype)
    gradients = backward(client, *inputs, dy)
    saved = backward(client, *inputs, dy, rstd=result.rstd)
    close(gradients.grad_x, grad_x, dtype)
    close(gradients.grad_weight, grad_w, dtype)
    assert gradients.grad_x.tobytes() == saved.grad_x.tobytes()
    assert gradients.dweight_acc is None
    if gate is not None:
        close(gradients.grad_gate, grad_gate, dtype)


def test_activations(client):
    x, w, gate = make(np.float32, 4, 64), make(np.float32, 64, seed=1), make(np.float32, 4, 64)
    results = {
        act: rlk.rms_norm_gated(client, x, w, gate, activation=act).y
        for act in ("silu", "swish", "sigmoid")
    }
    assert results["silu"].tobytes() == results["swish"].tobytes()
    close(results["sigmoid"], reference(x, w, gate=gate, act="sigmoid"), np.float32)


@pytest.mark.parametrize("contract", ["leftfold-v1", "hf-v1"])
def test_the_sum_of_single_rows_is_the_batch(client, contract):
    x, w, dy = make(BF16, 20, 96), make(BF16, 96, seed=1), make(BF16, 20, 96, seed=2)
    options = {"contract": f"rms_norm/{contract}", "wanted": "dweight_acc"}
    whole = rlk.rms_norm_backward(client, x, w, dy, **options).dweight_acc
    total = np.zeros(96, np.float32)
    for row in range(20):
        part = slice(row, row + 1)
        total += rlk.rms_norm_backward(client, x[part], w, dy[part], **options).dweight_acc
    assert total.tobytes() == whole.tobytes()
    first = rlk.rms_norm_backward(client, x[:7], w, dy[:7], **options).dweight_acc
    rest = rlk.rms_norm_backward(
        client, x[7:], w, dy[7:], dweight_acc_in=first, rows_before=7, **options
    )
    assert rest.dweight_acc.tobytes() == whole.tobytes()


def test_verification_by_reference(client):
    x, w, dy = make(np.float32, 9, 128), make(np.float32, 128, seed=1), make(np.float32, 9, 128)
    for contract in ("leftfold-v1", "chunk128-v1", "hf-v1"):
        result = rlk.rms_norm_backward(
            client, x, w, dy, contract=f"rms_norm/{contract}", verify="reference"
        )
        assert result.report.verification.passed


W32 = np.ones(8, np.float32)
X16 = np.ones((2, 8), np.float16)
REFUSALS = {
    "weight length": ("rms_norm", dict(x=X16, weight=np.ones(7, np.float16)), "weight"),
    "weight dtype": ("rms_norm", dict(x=X16, weight=np.ones(8, BF16)), "weight"),
    "eps": ("rms_norm", dict(x=X16, weight=W32, eps=0.0), "eps"),
    "eps that rounds to 0": ("rms_norm", dict(x=X16, weight=W32, eps=1e-46), "eps"),
    "offset": ("rms_norm", dict(x=X16, weight=W32, weight_offset=np.inf), "weight_offset"),
    "no columns": ("rms_norm", dict(x=X16[:, :0], weight=W32[:0]), "x"),
    "hf weight": (
        "rms_norm",
        dict(x=X16, weight=W32, contract="rms_norm/hf-v1"),
        "weight",
    ),
    "hf offset": (
        "rms_norm",
        dict(x=X16, weight=X16[0], weight_offset=1.0, contract="rms_norm/hf-v1"),
        "weight_offset",
    ),
    "gate shape": ("rms_norm_gated", dict(x=X16, weight=W32, gate=X16[:1]), "gate"),
    "gate dtype": ("rms_norm_gated", dict(x=X16, weight=W32, gate=np.float32(X16)), "gate"),
    "activation": (
        "rms_norm_gated",
        dict(x=X16, weight=W32, gate=X16, activation="gelu"),
        "activation",
    ),
    "hf activation": (
        "rms_norm_gated",
        dict(x=X16, weight=W32, gate=X16, activation="sigmoid", contract="rms_norm_gated/hf-v1"),
        "activation",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_by_name(client, case):
    op, arguments, field = REFUSALS[case]
    with pytest.raises(rlk.InvalidArgumentError) as caught:
        client.call(op + ".forward", **arguments)
    assert caught.value.field == field


def test_rows_before_is_a_multiple_of_128_for_chunks(client):
    arguments = dict(x=X16, weight=W32, grad_y=X16, rows_before=100)
    client.call("rms_norm.backward", **arguments)
    with pytest.raises(rlk.InvalidArgumentError) as caught:
        client.call("rms_norm.backward", contract="rms_norm/chunk128-v1", **arguments)
    assert caught.value.field == "rows_before" and caught.value.value == "100"
