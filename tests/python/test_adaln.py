"""adaln_projection_3mod through a server, values against numpy in FP64."""

import ml_dtypes
import numpy as np
import pytest

import rlk

BF16 = ml_dtypes.bfloat16
CHUNKS = ("shift_msa", "scale_msa", "gate_msa", "shift_mlp", "scale_mlp", "gate_mlp")
ROWS, WIDTH, DEPTH = 5, 7, 40


def make(*shape, seed=0, scale=1.0, dtype=np.float32):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def parameters(dtype):
    weight = make(18 * WIDTH, DEPTH, seed=1, scale=0.2, dtype=dtype)
    return make(ROWS, DEPTH, scale=2.0), weight, make(18 * WIDTH, seed=2, dtype=dtype)


def silu(z):
    return z / (1 + np.exp(-z))


def act_of(temb, dtype):
    """The FP32 SiLU and its cast, up to the last place of the FP32 SiLU."""
    return silu(temb.astype(np.float64)).astype(np.float32).astype(dtype).astype(np.float64)


def views_of(table):
    rows = table.reshape(3 * ROWS, 6, WIDTH)
    return {name: rows[:, at] for at, name in enumerate(CHUNKS)}


@pytest.mark.parametrize("dtype,tolerance", [(np.float32, 1e-4), (BF16, 3e-2)])
def test_views_and_table(client, dtype, tolerance):
    temb, weight, bias = parameters(dtype)
    expected = act_of(temb, dtype) @ weight.astype(np.float64).T + bias.astype(np.float64)
    table = rlk.adaln_projection_3mod_table(client, temb, weight, bias)
    np.testing.assert_allclose(table.table.astype(np.float64), expected, tolerance, tolerance)
    views = rlk.adaln_projection_3mod(client, temb, weight, bias)
    for name, view in views_of(table.table).items():
        assert getattr(views, name).tobytes() == np.ascontiguousarray(view).tobytes(), name


@pytest.mark.parametrize("dtype,tolerance", [(np.float32, 1e-4), (BF16, 3e-2)])
def test_gradients(client, dtype, tolerance):
    temb, weight, _ = parameters(dtype)
    g = make(ROWS, 18 * WIDTH, seed=5, dtype=dtype)
    grads = {"grad_" + k: np.ascontiguousarray(v) for k, v in views_of(g).items()}
    result = rlk.adaln_projection_3mod_backward(client, temb, weight, **grads)
    wide, z = g.astype(np.float64), temb.astype(np.float64)
    sigmoid = 1 / (1 + np.exp(-z))
    slope = sigmoid * (1 + z * (1 - sigmoid))
    close = lambda a, b, t: np.testing.assert_allclose(a.astype(np.float64), b, t, t)  # noqa: E731
    # FP32 whatever the weights are.
    assert result.grad_temb.dtype == np.float32
    close(result.grad_temb, (wide @ weight.astype(np.float64)) * slope, 1e-4)
    close(result.grad_weight, wide.T @ act_of(temb, dtype), tolerance)
    close(result.grad_bias, wide.sum(0), tolerance)


def test_an_absent_gradient_is_zero(client):
    temb, weight, _ = parameters(BF16)
    grad = make(3 * ROWS, WIDTH, dtype=BF16)
    alone = rlk.adaln_projection_3mod_backward(client, temb, weight, grad_gate_mlp=grad)
    zeros = {"grad_" + name: np.zeros_like(grad) for name in CHUNKS}
    given = rlk.adaln_projection_3mod_backward(
        client, temb, weight, **{**zeros, "grad_gate_mlp": grad})
    for name in ("grad_temb", "grad_weight", "grad_bias"):
        assert getattr(alone, name).tobytes() == getattr(given, name).tobytes(), name


def test_a_row_does_not_depend_on_its_company(client):
    temb, weight, bias = parameters(BF16)
    table = rlk.adaln_projection_3mod_table(client, temb, weight, bias).table
    for row in range(ROWS):
        alone = rlk.adaln_projection_3mod_table(client, temb[row : row + 1], weight, bias).table
        assert alone.tobytes() == table[row : row + 1].tobytes()


@pytest.mark.parametrize("change,field", [
    (lambda t, w, b: (t.astype(BF16), w, b), "temb"),
    (lambda t, w, b: (t, w[:-1].copy(), b[:-1].copy()), "weight"),
    (lambda t, w, b: (t, w, b.astype(np.float32)), "bias"),
    (lambda t, w, b: (t[:, :12].copy(), w[:, :12].copy(), b), "weight"),
    (lambda t, w, b: (t[:0].copy(), w, b), "temb"),
])
def test_refusals_name_the_field(client, change, field):
    with pytest.raises(rlk.InvalidArgumentError) as refused:
        rlk.adaln_projection_3mod(client, *change(*parameters(BF16)))
    assert refused.value.field == field


def test_a_backward_without_gradients_is_refused(client):
    temb, weight, _ = parameters(BF16)
    with pytest.raises(rlk.InvalidArgumentError) as refused:
        rlk.adaln_projection_3mod_backward(client, temb, weight)
    assert refused.value.field == "grad_shift_msa"


def test_h3_v1_needs_cuda(client):
    with pytest.raises(rlk.FailedPreconditionError) as refused:
        rlk.adaln_projection_3mod(
            client, *parameters(BF16), contract="adaln_projection_3mod/h3-v1")
    assert refused.value.reason in ("CONTRACT_UNAVAILABLE", "BACKEND_UNAVAILABLE")


def test_k128_v1_is_chosen_by_its_contract_and_takes_bf16_weights(client):
    temb, weight, bias = parameters(BF16)
    options = dict(contract="adaln_projection_3mod/k128-v1")
    result = rlk.adaln_projection_3mod_table(client, temb, weight, bias, **options)
    assert result.report.contract == options["contract"]
    assert result.report.attributes["fold_parts"] == 1
    expected = act_of(temb, BF16) @ weight.astype(np.float64).T + bias.astype(np.float64)
    np.testing.assert_allclose(result.table.astype(np.float64), expected, 1e-2, 1e-2)
    grad = make(3 * ROWS, WIDTH, seed=3)
    gradients = rlk.adaln_projection_3mod_backward(
        client, temb, weight, grad_gate_msa=grad, **options
    )
    bias_grad = np.zeros((3, 6, WIDTH))
    bias_grad[:, CHUNKS.index("gate_msa")] = grad.reshape(ROWS, 3, WIDTH).sum(0, dtype=np.float64)
    np.testing.assert_allclose(
        gradients.grad_bias.astype(np.float64), bias_grad.reshape(-1), 1e-2, 1e-2
    )
    with pytest.raises(rlk.InvalidArgumentError) as error:
        rlk.adaln_projection_3mod_table(client, *parameters(np.float32), **options)
    assert error.value.field == "weight"
