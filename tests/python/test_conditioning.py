"""det_linear, timestep_mlp_fp32 and timestep_sinusoid_h3 through a server."""

import ml_dtypes
import numpy as np
import pytest

import rlk

BF16 = ml_dtypes.bfloat16


def make(*shape, seed=0, scale=1.0, dtype=np.float32):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def silu(z):
    return z * sigmoid(z)


def silu_slope(z):
    s = sigmoid(z)
    return s * (1 + z * (1 - s))


def close(actual, expected, tolerance=1e-4):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def fold(g, x):
    """The FP32 chain of the weight gradient, row by row, and the sum of the bias gradient."""
    dw = np.zeros((g.shape[1], x.shape[1]), np.float32)
    db = np.zeros(g.shape[1], np.float32)
    for row, grad in zip(x, g):
        # One rounding for a product and a sum: FP64 holds both exactly enough to round once for
        # these values of 12 bits.
        dw = (dw.astype(np.float64) + np.outer(grad, row).astype(np.float64)).astype(np.float32)
        db = db + grad
    return dw, db


@pytest.mark.parametrize("activation", ["none", "silu"])
def test_linear_values_and_gradients(client, activation):
    x, w, b = make(9, 132), make(33, 132, seed=1, scale=0.2), make(33, seed=2)
    dy = make(9, 33, seed=3)
    forward = rlk.det_linear(client, x, w, b, activation=activation, wanted=("y", "pre"))
    pre = x.astype(np.float64) @ w.T.astype(np.float64) + b
    close(forward.pre, pre)
    close(forward.y, silu(pre) if activation == "silu" else pre)
    g = dy * silu_slope(pre) if activation == "silu" else dy
    saved = forward.pre if activation == "silu" else None
    through = rlk.det_linear_backward_input(client, dy, w, pre=saved, activation=activation)
    close(through.grad_x, g @ w)
    weight = rlk.det_linear_backward_weight(
        client, dy, x, pre=saved, activation=activation, wanted=("grad_weight", "grad_bias")
    )
    close(weight.grad_weight, g.T @ x)
    close(weight.grad_bias, g.sum(0))
    assert forward.report.contract == "det_linear/h3-det-linear-v1"


def test_linear_rows_do_not_depend_on_the_batch(client):
    x, w, b = make(65, 36), make(17, 36, seed=1), make(17, seed=2)
    whole = rlk.det_linear(client, x, w, b, activation="silu").y
    for rows in (1, 2, 8, 9, 64):
        part = rlk.det_linear(client, x[:rows], w, b, activation="silu").y
        assert part.tobytes() == whole[:rows].tobytes()
    last = rlk.det_linear(client, x[64:], w, b, activation="silu").y
    assert last.tobytes() == whole[64:].tobytes()


def test_linear_gradients_are_folds_over_rows_and_are_carried(client):
    # Few bits, so that products are exact and the chain can be written with two roundings.
    x = np.round(make(40, 20) * 16) / 16
    dy = np.round(make(40, 3, seed=1) * 16) / 16
    everything = ("grad_weight", "grad_bias", "dweight_acc", "dbias_acc")
    whole = rlk.det_linear_backward_weight(client, dy, x, wanted=everything)
    dw, db = fold(dy, x)
    assert whole.grad_weight.tobytes() == dw.tobytes()
    assert whole.grad_bias.tobytes() == db.tobytes()
    first = rlk.det_linear_backward_weight(client, dy[:13], x[:13], wanted=everything)
    rest = rlk.det_linear_backward_weight(
        client,
        dy[13:],
        x[13:],
        dweight_acc_in=first.dweight_acc,
        dbias_acc_in=first.dbias_acc,
        rows_before=13,
        wanted=everything,
    )
    for name in everything:
        assert getattr(rest, name).tobytes() == getattr(whole, name).tobytes()


def test_linear_k128_is_chosen_by_its_contract_and_folds_in_parts(client):
    x, w = make(2, 16384, dtype=BF16), make(3, 16384, seed=1, scale=0.1, dtype=BF16)
    options = dict(contract="det_linear/bf16-k128-v1", output_dtype="F32")
    whole = rlk.det_linear(client, x, w, **options)
    assert whole.report.contract == options["contract"]
    # The contract's own choice for a reduction of this length; a quarter of it has one part.
    assert whole.report.attributes["fold_parts"] == 4
    columns = [np.split(tensor, 4, axis=1) for tensor in (x, w)]
    quarters = [
        rlk.det_linear(client, *map(np.ascontiguousarray, pair), **options)
        for pair in zip(*columns)
    ]
    assert [q.report.attributes["fold_parts"] for q in quarters] == [1] * 4
    q = [quarter.y for quarter in quarters]
    assert ((q[0] + q[1]) + (q[2] + q[3])).tobytes() == whole.y.tobytes()
    one = rlk.det_linear(client, x, w, fold_parts=1, **options)
    assert one.report.attributes["fold_parts"] == 1 and one.y.tobytes() != whole.y.tobytes()
    close(whole.y, x.astype(np.float64) @ w.T.astype(np.float64))
    with pytest.raises(rlk.InvalidArgumentError) as error:
        short = make(2, 128, dtype=BF16)
        rlk.det_linear(client, short, short, fold_parts=2, **options)
    assert (error.value.field, error.value.value) == ("fold_parts", "2")


def test_linear_k128_gradients_are_carried_at_whole_chunks(client):
    x, dy = make(200, 16, dtype=BF16), make(200, 5, seed=1)
    options = dict(contract="det_linear/bf16-k128-v1", wanted=("dweight_acc", "dbias_acc"))
    whole = rlk.det_linear_backward_weight(client, dy, x, **options)
    first = rlk.det_linear_backward_weight(client, dy[:128], x[:128], **options)
    carry = dict(dweight_acc_in=first.dweight_acc, dbias_acc_in=first.dbias_acc)
    rest = rlk.det_linear_backward_weight(
        client, dy[128:], x[128:], rows_before=128, **carry, **options
    )
    assert rest.dweight_acc.tobytes() == whole.dweight_acc.tobytes()
    assert rest.dbias_acc.tobytes() == whole.dbias_acc.tobytes()
    close(whole.dweight_acc, dy.T.astype(np.float64) @ x.astype(np.float64))
    with pytest.raises(rlk.InvalidArgumentError) as error:
        rlk.det_linear_backward_weight(client, dy, x, rows_before=100, **carry, **options)
    assert error.value.field == "rows_before"


@pytest.mark.parametrize(
    "arguments, reason, field",
    [
        ({"x": make(2, 6), "weight": make(3, 6)}, "SHAPE_MISMATCH", "weight"),
        ({"x": make(0, 8), "weight": make(3, 8)}, "SHAPE_MISMATCH", "x"),
        ({"x": make(2, 8), "weight": make(3, 12)}, "SHAPE_MISMATCH", "weight"),
        ({"x": make(2, 8), "weight": make(3, 8, dtype=np.float16)}, "DTYPE_NOT_ALLOWED", "weight"),
        ({"x": make(2, 8), "weight": make(3, 8), "bias": make(4)}, "SHAPE_MISMATCH", "bias"),
        (
            {"x": make(2, 8), "weight": make(3, 8), "fold_parts": 2},
            "ATTRIBUTE_OUT_OF_RANGE",
            "fold_parts",
        ),
    ],
)
def test_linear_refuses_by_name(client, arguments, reason, field):
    with pytest.raises(rlk.InvalidArgumentError) as error:
        rlk.det_linear(client, **arguments)
    assert (error.value.reason, error.value.field) == (reason, field)


def test_linear_without_cuda_has_no_silu_cuda(client):
    with pytest.raises(rlk.FailedPreconditionError) as error:
        rlk.det_linear(client, make(2, 8), make(3, 8), activation="silu_cuda", backend="cpu")
    assert error.value.reason == "BACKEND_UNAVAILABLE"


def test_mlp_values_and_gradients(client):
    x, dy = make(5, 36), make(5, 17, seed=5)
    w1, b1 = make(20, 36, seed=1, scale=0.3), make(20, seed=2)
    w2, b2 = make(17, 20, seed=3, scale=0.4), make(17, seed=4)
    forward = rlk.timestep_mlp_fp32(client, x, w1, b1, w2, b2, wanted=("y", "pre"))
    pre = x.astype(np.float64) @ w1.T + b1
    h = silu(pre)
    close(forward.pre, pre)
    close(forward.y, h @ w2.T + b2)
    saved = rlk.timestep_mlp_fp32_backward(client, x, w1, b1, w2, dy, pre=forward.pre)
    recomputed = rlk.timestep_mlp_fp32_backward(client, x, w1, b1, w2, dy)
    d = (dy @ w2) * silu_slope(pre)
    expected = {
        "grad_x": d @ w1,
        "grad_w1": d.T @ x,
        "grad_b1": d.sum(0),
        "grad_w2": dy.T @ h,
        "grad_b2": dy.sum(0),
    }
    for name, value in expected.items():
        close(getattr(saved, name), value)
        assert getattr(saved, name).tobytes() == getattr(recomputed, name).tobytes()
    # The layers one by one have the same bits.
    hidden = rlk.det_linear(client, x, w1, b1, activation="silu").y
    assert rlk.det_linear(client, hidden, w2, b2).y.tobytes() == forward.y.tobytes()


@pytest.mark.parametrize("argument", ["x", "w1", "b1", "w2", "b2"])
def test_mlp_refuses_bf16(client, argument):
    arguments = {"x": make(2, 8), "w1": make(4, 8), "b1": make(4), "w2": make(3, 4), "b2": make(3)}
    arguments[argument] = arguments[argument].astype(BF16)
    with pytest.raises(rlk.InvalidArgumentError) as error:
        rlk.timestep_mlp_fp32(client, **arguments)
    assert (error.value.reason, error.value.field) == ("DTYPE_NOT_ALLOWED", argument)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16], ids=lambda d: np.dtype(d).name)
def test_sinusoid_values_and_gradient(client, dtype):
    t = np.linspace(0, 1, 7).astype(dtype)
    wide = t.astype(np.float64)[:, None]
    frequencies = 10000.0 ** (-np.arange(32) / 32)
    embedding = rlk.timestep_sinusoid_h3(client, t, 64).embedding
    assert embedding.dtype == np.float32 and embedding.shape == (7, 64)
    close(embedding, np.hstack([np.cos(wide * frequencies), np.sin(wide * frequencies)]), 1e-6)
    grad = make(7, 64)
    result = rlk.timestep_sinusoid_h3_backward(client, grad, embedding, timestep_dtype=dtype)
    assert result.grad_timestep.dtype == dtype
    expected = (grad[:, 32:] * embedding[:, :32] - grad[:, :32] * embedding[:, 32:]) @ frequencies
    close(result.grad_timestep.astype(np.float64), expected, 1e-5 if dtype == np.float32 else 2e-2)


@pytest.mark.parametrize("bad", [-0.5, 1.001, 250.0, 1000.0, np.nan, np.inf, -np.inf])
def test_sinusoid_refuses_timesteps_that_are_no_fractions(client, bad):
    with pytest.raises(rlk.InvalidArgumentError) as error:
        rlk.timestep_sinusoid_h3(client, np.float32([0.5, 0.25, bad]))
    assert (error.value.reason, error.value.field) == ("VALUE_OUT_OF_RANGE", "timestep")
    assert "element 2" in error.value.value


@pytest.mark.parametrize("channels", [0, 1, 255, -2, 65538])
def test_sinusoid_refuses_odd_and_absurd_channel_counts(client, channels):
    with pytest.raises(rlk.InvalidArgumentError) as error:
        rlk.timestep_sinusoid_h3(client, np.float32([0.5]), channels)
    assert (error.value.reason, error.value.field) == ("ATTRIBUTE_OUT_OF_RANGE", "num_channels")


@pytest.mark.parametrize("period", [0.0, 1e-6, -1.0, np.inf, np.nan])
def test_sinusoid_refuses_periods(client, period):
    with pytest.raises(rlk.InvalidArgumentError) as error:
        rlk.timestep_sinusoid_h3(client, np.float32([0.5]), max_period=period)
    assert error.value.field == "max_period"


def test_strided_timesteps_are_taken_as_they_are(client):
    t = np.linspace(0, 1, 12).astype(np.float32)
    strided = rlk.timestep_sinusoid_h3(client, t[::3], 8).embedding
    assert (
        strided.tobytes() == rlk.timestep_sinusoid_h3(client, t[::3].copy(), 8).embedding.tobytes()
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda client: rlk.det_linear(
            client, make(3, 8), make(5, 8, seed=1), verify="reference", activation="silu"
        ),
        lambda client: rlk.timestep_mlp_fp32(
            client, make(3, 8), make(4, 8, seed=1), make(4), make(3, 4), make(3), verify="reference"
        ),
        lambda client: rlk.timestep_sinusoid_h3(client, np.float32([0.1, 0.9]), verify="reference"),
    ],
)
def test_the_reference_agrees(client, call):
    assert call(client).report.verification.passed
