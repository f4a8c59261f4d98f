"""final_logit_softcap on the server: bits against the emulated contract, accuracy against FP64."""

import emulation
import ml_dtypes
import numpy as np
import pytest

import rlk

BF16 = np.dtype(ml_dtypes.bfloat16)
F16 = np.dtype(np.float16)
F32 = np.dtype(np.float32)
CAPS = [20.0, 30.0, 7.3, 0.1]


def bits(array):
    return np.ascontiguousarray(array).reshape(-1).view(f"u{array.dtype.itemsize}")


def assert_same_bits(got, expected):
    assert got.dtype == expected.dtype and got.shape == expected.shape
    different = np.flatnonzero(bits(got) != bits(expected))
    assert different.size == 0, (
        f"{different.size} of {got.size} differ, first at {different[0]}: "
        f"{bits(got)[different[0]]:#x}, expected {bits(expected)[different[0]]:#x}"
    )


def singles(count, seed):
    """Random FP32 patterns, and values around the cap: most patterns are saturated or linear."""
    rng = np.random.default_rng(seed)
    patterns = rng.integers(0, 1 << 32, count // 2, dtype=np.uint64).astype(np.uint32)
    special = np.uint32([0, 1 << 31, 1, 0x7F800000, 0xFF800000, 0x7F800001, 0xFFC12345, 0x7F7FFFFF])
    near = rng.normal(0, 40, count - len(patterns) - len(special)).astype(np.float32)
    return np.concatenate([patterns.view(np.float32), special.view(np.float32), near])


@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_forward_of_all_sixteen_bit_patterns(client, dtype, cap):
    patterns = np.arange(1 << 16, dtype=np.uint16)
    x = patterns.view(dtype)
    result = client.call("final_logit_softcap.forward", x=x, softcap=cap)
    assert_same_bits(result.y, emulation.forward(x, cap))
    narrow = client.call("final_logit_softcap.forward", x=x, softcap=cap, output_dtype=dtype)
    assert_same_bits(narrow.y, emulation.forward(x, cap, dtype))
    assert np.array_equal(patterns, np.arange(1 << 16))  # inputs are as they were, NaNs included


@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_backward_of_all_sixteen_bit_patterns(client, dtype, cap):
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    rng = np.random.default_rng(5)
    for grad in (
        np.ones(1 << 16, np.float32),
        rng.normal(size=1 << 16).astype(np.float32),
        rng.permutation(1 << 16).astype(np.uint16).view(dtype),
    ):
        before = bits(grad).copy()
        result = client.call("final_logit_softcap.backward", x=x, grad_y=grad, softcap=cap)
        assert_same_bits(result.grad_x, emulation.backward(x, grad, cap))
        assert np.array_equal(before, bits(grad))


@pytest.mark.parametrize("cap", CAPS)
def test_single_precision(client, cap):
    x = singles(200_000, 3)
    grad = singles(200_000, 4)
    y = client.call("final_logit_softcap.forward", x=x, softcap=cap).y
    assert_same_bits(y, emulation.forward(x, cap))
    grad_x = client.call("final_logit_softcap.backward", x=x, grad_y=grad, softcap=cap).grad_x
    assert_same_bits(grad_x, emulation.backward(x, grad, cap))


def test_default_cap_is_thirty(client):
    x = singles(1000, 9)
    result = client.call("final_logit_softcap.forward", x=x)
    assert_same_bits(result.y, emulation.forward(x, 30.0))
    assert result.report.attributes["softcap"] == 30.0
    assert result.report.attributes["output_dtype"] == "F32"


def test_nan_is_canonical(client):
    nans = np.uint32([0x7F800001, 0x7FC00000, 0xFFC12345, 0xFFFFFFFF]).view(np.float32)
    y = client.call("final_logit_softcap.forward", x=nans).y
    assert set(bits(y).tolist()) == {0x7FFFFFFF}
    for dtype, value in ((BF16, 0xFFC1), (F16, 0x7C01)):
        x = np.full(3, value, np.uint16).view(dtype)
        y = client.call("final_logit_softcap.forward", x=x, output_dtype=dtype).y
        assert set(bits(y).tolist()) == {0x7FFF}


def close(got, expected, atol, rtol):
    return bool(np.all(np.abs(got.astype(np.float64) - expected) <= atol + rtol * np.abs(expected)))


@pytest.mark.parametrize("cap", CAPS)
def test_accuracy_against_fp64(client, cap):
    x = np.linspace(-12 * cap, 12 * cap, 100_001).astype(np.float32)
    cap32 = np.float64(np.float32(cap))
    expected = cap32 * np.tanh(x.astype(np.float64) / cap32)
    y = client.call("final_logit_softcap.forward", x=x, softcap=cap).y
    # Two ulp of tanh, and one rounding each for the quotient and the product.
    rtol = 4 * 2.0**-23
    assert close(y, expected, 0, rtol)
    grad = np.random.default_rng(1).normal(size=x.size).astype(np.float32)
    with np.errstate(over="ignore"):
        slope = 1 / np.cosh(x.astype(np.float64) / cap32) ** 2
    expected_grad = grad.astype(np.float64) * slope
    grad_x = client.call("final_logit_softcap.backward", x=x, grad_y=grad, softcap=cap).grad_x
    atol = 1e-6 * np.maximum(1, np.abs(grad.astype(np.float64)))
    assert close(grad_x, expected_grad, atol, 0)
    # The same judgments refuse planted faults.
    narrow = x.astype(BF16).astype(np.float64)
    for fault in (y * 0, y * np.float32(1.05), cap32 * np.tanh(narrow / cap32)):
        assert not close(fault, expected, 0, rtol)
    narrow_slope = 1 / np.cosh(np.clip(narrow / cap32, -700, 700)) ** 2
    for fault in (grad_x * 0, grad_x * np.float32(1.05), grad * narrow_slope):
        assert not close(fault, expected_grad, atol, 0)


VIEWS = {
    "scalar": lambda x: x[3],
    "0-d": lambda x: x[3].reshape(()),
    "empty": lambda x: x[:0],
    "empty with rank": lambda x: x[:0].reshape(0, 4, 3),
    "one": lambda x: x[:1],
    "odd": lambda x: x[:257],
    "rank 8": lambda x: x[:1536].reshape(1, 2, 3, 1, 4, 1, 8, 8),
    "transposed": lambda x: x[:1500].reshape(30, 50).T,
    "permuted": lambda x: x[:1440].reshape(4, 6, 5, 12).transpose(2, 0, 3, 1),
    "expanded": lambda x: np.broadcast_to(x[:7], (5, 3, 7)),
    "every other": lambda x: x[:2000:2],
    "reversed": lambda x: x[:2000][::-1],
    "columns": lambda x: x[:2048].reshape(32, 64)[:, 3:9],
}


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
@pytest.mark.parametrize("view", VIEWS)
def test_shapes_and_strides(client, view, dtype):
    base = rlk.random_tensor((4096,), dtype, 21, 40.0)
    x = VIEWS[view](base)
    dense = np.ascontiguousarray(x).reshape(np.shape(x))
    result = client.call("final_logit_softcap.forward", x=x, digests="tensor")
    assert_same_bits(result.y, emulation.forward(dense, 30.0))
    assert result.report.input_digests["x"] == rlk.digest(x)
    # The gradient comes strided another way than x.
    dense_grad = rlk.random_tensor(np.shape(x), "f32", 8)
    grad = np.asfortranarray(dense_grad).reshape(np.shape(x), order="A")
    back = client.call("final_logit_softcap.backward", x=x, grad_y=grad)
    assert_same_bits(back.grad_x, emulation.backward(dense, dense_grad, 30.0))


def test_bits_do_not_depend_on_the_batch(client):
    x = rlk.random_tensor((37, 129), "bf16", 4, 40.0)
    whole = client.call("final_logit_softcap.forward", x=x, softcap=20.0).y
    for rows in (slice(0, 1), slice(5, 6), slice(3, 20), slice(36, 37)):
        part = client.call("final_logit_softcap.forward", x=x[rows], softcap=20.0).y
        assert_same_bits(part, whole[rows])
    order = np.random.default_rng(0).permutation(37)
    assert_same_bits(
        client.call("final_logit_softcap.forward", x=x[order], softcap=20.0).y, whole[order]
    )
