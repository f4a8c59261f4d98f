"""Reproducible random tensors: against the definition in plain integers, and shared vectors."""

import json

import ml_dtypes
import numpy as np
import pytest
from conftest import ROOT

import rlk

VECTORS = ROOT / "tests" / "golden" / "random_vectors.json"
MASK = (1 << 64) - 1


def mix(seed, i):
    z = (seed + (i + 1) * 0x9E3779B97F4A7C15) & MASK
    z ^= z >> 30
    z = z * 0xBF58476D1CE4E5B9 & MASK
    z ^= z >> 27
    z = z * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def normal(z):
    parts = (z & 0xFFFF) + (z >> 16 & 0xFFFF) + (z >> 32 & 0xFFFF) + (z >> 48)
    return (parts - 131070) / 37837.0


@pytest.mark.parametrize("seed", [0, 7, MASK])
def test_follows_the_definition(seed):
    z = [mix(seed, i) for i in range(50)]
    wide = np.array([normal(v) * 2.5 for v in z])
    single = wide.astype(np.float32)
    cases = {
        "f64": wide,
        "f32": single,
        "f16": single.astype(np.float16),
        "bf16": single.astype(ml_dtypes.bfloat16),
    }
    for dtype, expected in cases.items():
        got = rlk.random_tensor((5, 10), dtype, seed, 2.5)
        assert got.dtype == expected.dtype and got.shape == (5, 10)
        assert got.tobytes() == expected.tobytes(), dtype
    assert rlk.random_tensor(50, "i32", seed).tolist() == [v % 256 for v in z]
    assert rlk.random_tensor(50, "i64", seed, 1 << 40).tolist() == [v % (1 << 40) for v in z]
    assert rlk.random_tensor(50, "u8", seed).tolist() == [v & 255 for v in z]
    assert rlk.random_tensor(50, "bool", seed).tolist() == [bool(v & 1) for v in z]


def test_specs():
    x = rlk.random_tensor("random:2x3x257:bf16:7:30")
    assert x.tobytes() == rlk.random_tensor((2, 3, 257), "bf16", 7, 30).tobytes()
    assert rlk.random_tensor("random:scalar:f32:1").shape == ()
    assert rlk.random_tensor("random:0x3:f16:1").shape == (0, 3)
    assert 0.99 < rlk.random_tensor("random:100000:f32:3").std() < 1.01


@pytest.mark.parametrize(
    "arguments",
    [
        ("random:2x3:bf16",),
        ("random:2xa:bf16:1",),
        ("random::f32:1",),
        ("random:2:f31:1",),
        ("random:2:f32:-1",),
        ("random:2:f32:18446744073709551616",),
        ("random:2:f32:1:inf",),
        ("random:2:i32:1:0",),
        ("random:2:i32:1:2147483649",),
        ("random:2:i32:1:2.5",),
        ("random:2:u8:1:3",),
        ("random:1x1x1x1x1x1x1x1x1:u8:1",),
        ("random:-1:f32:1",),
        ("zeros:2:f32:1",),
        ("random:2:f32:1", "f32"),
        ((2, -1), "f32"),
        ((2,), "f8"),
    ],
    ids=str,
)
def test_refusals(arguments):
    with pytest.raises(rlk.InvalidArgumentError) as caught:
        rlk.random_tensor(*arguments)
    assert caught.value.allowed


def test_shared_vectors():
    if not VECTORS.exists():
        pytest.skip("tests/golden/random_vectors.json is not there")
    vectors = json.loads(VECTORS.read_text())
    vectors = vectors["vectors"] if isinstance(vectors, dict) else vectors
    assert vectors
    for vector in vectors:
        assert rlk.digest(rlk.random_tensor(vector["spec"])) == vector["digest"], vector["spec"]
