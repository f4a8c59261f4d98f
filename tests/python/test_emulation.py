"""The emulation itself: its fused multiply-add against exact rational arithmetic."""

from fractions import Fraction

import emulation
import numpy as np
import pytest
from conftest import full_only


def round_to_f32(value):
    """The float32 nearest to a rational number, ties to even."""
    if value == 0:
        return 0.0
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    quantum = Fraction(2) ** (max(exponent, -126) - 23)
    rounded = round(value / quantum) * quantum  # round() of a Fraction is half to even
    if abs(rounded) >= Fraction(2) ** 128:
        return float("inf") if value > 0 else float("-inf")
    return float(rounded)


def operands():
    """Random bit patterns of every magnitude, and sums built to lie near rounding boundaries."""
    rng = np.random.default_rng(11)
    patterns = rng.integers(0, 1 << 32, (3, 4000), dtype=np.uint64).astype(np.uint32)
    a, b, c = patterns.view(np.float32)
    near = rng.uniform(1, 2, (2, 4000)).astype(np.float32)
    product = near[0].astype(np.float64) * near[1].astype(np.float64)
    # c so small that it only breaks the tie between two neighbours of the product.
    tiny = (rng.choice([-1, 1], 4000) * 2.0 ** rng.integers(-60, -24, 4000)).astype(np.float32)
    # The product's cancellation by its own rounding leaves the low half.
    cancel = -product.astype(np.float32)
    # Half-way products: odd * odd with 25 significant bits.
    odd = (1 + 2.0 ** -rng.integers(1, 24, 4000)).astype(np.float32)
    half = (1 + 2.0 ** -rng.integers(1, 24, 4000)).astype(np.float32)
    return [(a, b, c), (near[0], near[1], tiny), (near[0], near[1], cancel), (odd, half, tiny)]


@pytest.mark.parametrize("kind", range(4), ids=["patterns", "ties", "cancellation", "half-way"])
def test_fma_rounds_the_exact_value_once(kind):
    a, b, c = operands()[kind]
    got = emulation.fma(a, b, c)
    checked = 0
    for i in range(len(a)):
        x, y, z = float(a[i]), float(b[i]), float(c[i])
        if not all(np.isfinite([x, y, z])):
            continue
        expected = round_to_f32(Fraction(x) * Fraction(y) + Fraction(z))
        assert float(got[i]) == expected, (x.hex(), y.hex(), z.hex())
        checked += 1
    assert checked > 3500


def test_fma_differs_from_two_roundings():
    # The emulation would be of no use if a plain product and sum passed the same test.
    a, b, c = operands()[2]
    assert (emulation.fma(a, b, c) != (a * b + c)).any()


@pytest.mark.parametrize("value", [0.0, -0.0, np.inf, -np.inf, 1e-45, -1e-45, 9.1, -9.1])
def test_tanh_of_special_values(value):
    x = np.float32(value)
    expected = np.float32(np.tanh(np.float64(x)))
    got = emulation.tanh(np.array([x], np.float32))[0]
    assert got.tobytes() == expected.tobytes()


def test_tanh_is_accurate():
    x = np.linspace(-12, 12, 100001, dtype=np.float32)
    expected = np.tanh(x.astype(np.float64))
    spacing = np.spacing(np.abs(expected).astype(np.float32)).astype(np.float64)
    assert np.max(np.abs(emulation.tanh(x) - expected) / spacing) < 2.0


@full_only
def test_tanh_has_the_published_hash():
    # Over the patterns 0, 61, 122, ..: h = h * golden + bits(tanh), NaN as 0x7fffffff.
    golden = np.uint64(0x9E3779B97F4A7C15)
    patterns = np.arange(0, 1 << 32, 61, dtype=np.uint64)
    h = 0
    for begin in range(0, len(patterns), 1 << 20):
        block = patterns[begin : begin + (1 << 20)].astype(np.uint32).view(np.float32)
        bits = emulation.cast(emulation.tanh(block), np.float32).view(np.uint32).astype(np.uint64)
        powers = np.full(len(bits), golden, np.uint64)
        powers[0] = 1
        powers = np.multiply.accumulate(powers)
        total = int(np.add.reduce(bits * powers[::-1]))
        h = (h * int(powers[-1]) * int(golden) + total) % (1 << 64)
    assert f"{h:016x}" == "96502cf860373858"
