"""Reproducible random tensors: the same bytes as ``random:SHAPE:DTYPE:SEED[:SCALE]`` elsewhere."""

from __future__ import annotations

import math
from typing import Optional, Sequence, Tuple, Union

import numpy as np

from rlk import _dtypes
from rlk.errors import InvalidArgumentError

_SPEC = "random:SHAPE:DTYPE:SEED[:SCALE]"
_RANK_MAX = 8
_U64 = np.uint64


def _bits(count: int, seed: int) -> np.ndarray:
    """SplitMix64: the finalised 64 bits of elements 0 .. count-1."""
    z = np.arange(1, count + 1, dtype=_U64)
    z *= _U64(0x9E3779B97F4A7C15)
    z += _U64(seed)
    z ^= z >> _U64(30)
    z *= _U64(0xBF58476D1CE4E5B9)
    z ^= z >> _U64(27)
    z *= _U64(0x94D049BB133111EB)
    z ^= z >> _U64(31)
    return z


def _bad(field: str, value: object, allowed: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{field}: {value!r} is not allowed; allowed: {allowed}",
        reason="UNKNOWN_OPTION",
        field=field,
        value=str(value),
        allowed=allowed,
    )


def _number(text: str) -> float:
    # Integers stay exact: 2^63 - 1 is no FP64 number.
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def parse_spec(spec: str) -> Tuple[Tuple[int, ...], str, int, Optional[float]]:
    """Splits ``random:SHAPE:DTYPE:SEED[:SCALE]`` into shape, dtype, seed and scale.

    SHAPE is sizes joined by ``x`` ("2x3x257"), or "scalar".
    """
    parts = spec.split(":")
    if parts[0] != "random" or len(parts) not in (4, 5):
        raise _bad("spec", spec, _SPEC)
    try:
        text = parts[1]
        shape = () if text == "scalar" else tuple(int(size) for size in text.split("x"))
        seed = int(parts[3])
        scale = _number(parts[4]) if len(parts) == 5 else None
    except ValueError:
        raise _bad("spec", spec, _SPEC) from None
    return shape, parts[2], seed, scale


def random_tensor(
    spec: Union[str, int, Sequence[int]],
    dtype: object = None,
    seed: int = 0,
    scale: Optional[float] = None,
) -> np.ndarray:
    """A tensor whose bytes any client can make again.

    Element i (C order) comes from ``z = seed + (i + 1) * 0x9E3779B97F4A7C15`` mod 2^64, then
    ``z ^= z >> 30; z *= 0xbf58476d1ce4e5b9; z ^= z >> 27; z *= 0x94d049bb133111eb; z ^= z >> 31``.
    Float types: the sum of the four 16-bit parts of z, less 131070, divided by 37837 (which makes
    the standard deviation 1) and multiplied by ``scale``, in FP64; F64 is that value, F32 its
    rounding, F16 and BF16 the F32 value rounded once more (nearest even). I32 and I64: z mod
    ``scale``. U8: z & 255. BOOL: z & 1.

    Args:
        spec: ``"random:2x3x257:bf16:7:30"``, which also fixes the other arguments, or a shape.
        dtype: with a shape, the element type in any spelling; F32 by default.
        seed: with a shape, an integer from 0 to 2^64 - 1.
        scale: with a shape, 1 by default for floats and 256 for integers.

    Raises:
        InvalidArgumentError: a spec, dtype, seed, size or scale that is not allowed.
    """
    if isinstance(spec, str):
        if dtype is not None or seed != 0 or scale is not None:
            raise _bad("spec", spec, "no dtype, seed or scale beside a spec, which holds them")
        shape, dtype, seed, scale = parse_spec(spec)
    else:
        shape = (spec,) if isinstance(spec, (int, np.integer)) else tuple(spec)
    number = _dtypes.parse("f32" if dtype is None else dtype)
    if number is None:
        raise _bad("dtype", dtype, ", ".join(_dtypes.names()))
    if not 0 <= int(seed) < 1 << 64:
        raise _bad("seed", seed, "0 .. 2^64 - 1")
    if len(shape) > _RANK_MAX or any(int(size) < 0 for size in shape):
        raise _bad("shape", shape, f"at most {_RANK_MAX} sizes, not negative")
    count = 1
    for size in shape:
        count *= int(size)
    return _fill(_bits(count, int(seed)), number, scale).reshape(shape)


def _fill(z: np.ndarray, number: int, scale: Optional[float]) -> np.ndarray:
    name = _dtypes.NAMES[number]
    target = _dtypes.to_numpy(number)
    if name in ("I32", "I64"):
        modulus = 256 if scale is None else scale
        if modulus != int(modulus) or not 1 <= modulus <= 1 << (31 if name == "I32" else 63):
            raise _bad("scale", scale, "an integer, up to 2^31 for I32 and 2^63 for I64")
        return (z % _U64(int(modulus))).astype(target)
    if name in ("U8", "BOOL") and scale is not None:
        raise _bad("scale", scale, "none for U8 and BOOL")
    if name == "U8":
        return (z & _U64(255)).astype(target)
    if name == "BOOL":
        return (z & _U64(1)).astype(target)
    factor = 1.0 if scale is None else float(scale)
    if not math.isfinite(factor):
        raise _bad("scale", scale, "a finite number")
    parts = (z & _U64(0xFFFF)) + ((z >> _U64(16)) & _U64(0xFFFF))
    parts += ((z >> _U64(32)) & _U64(0xFFFF)) + (z >> _U64(48))
    value = (parts.astype(np.int64) - 131070).astype(np.float64) / 37837.0
    value *= factor
    with np.errstate(over="ignore"):  # beyond the type's range is infinity, as everywhere
        return value if name == "F64" else value.astype(np.float32).astype(target)
