"""A straight-line emulation of final_logit_softcap/portable-v1, written from the contract's text.

It shares no code with the kernels. Every operation is one IEEE binary32 operation, rounded to
nearest even; numpy's float32 add, subtract, multiply and divide are that, and `fma` is built below.
"""

import ml_dtypes
import numpy as np

F32 = np.float32
LOG2E = F32(float.fromhex("0x1.715476p+0"))
LN2_HIGH = F32(float.fromhex("0x1.62e430p-1"))
LN2_LOW = F32(float.fromhex("-0x1.05c610p-29"))
MAGIC = F32(12582912.0)
TANH_COEFFICIENTS = [
    F32(float.fromhex(text))
    for text in (
        "-0x1.9d55e2p-6",
        "0x1.6d42a4p-4",
        "-0x1.11135ep-2",
        "0x1.5554f0p-1",
        "-0x1.555554p+0",
        "2",
    )
]


def fma(a, b, c):
    """a * b + c rounded once to float32.

    The product of two float32 is exact in float64. Its float64 sum with c is rounded to odd (the
    last bit stands for everything beyond it, whose sign the exact error of the sum gives), so that
    rounding it again to float32 is the one rounding of the exact value.
    """
    with np.errstate(all="ignore"):
        a, b, c = (np.asarray(v, F32).astype(np.float64) for v in (a, b, c))
        product = a * b
        total = product + c
        # The exact error of the sum (Knuth).
        virtual = total - product
        error = (product - (total - virtual)) + (c - virtual)
        bits = np.atleast_1d(total).view(np.int64)
        inexact = np.atleast_1d((error != 0) & np.isfinite(total))
        even = (bits & 1) == 0
        # Away from zero when the error has the sign of the total, else towards zero: an even
        # significand is then between two odd ones, the nearer in the error's direction.
        outwards = np.atleast_1d((error > 0) == (total > 0))
        step = np.where(outwards, 1, -1)
        odd = np.where(inexact & even, bits + step, bits).view(np.float64)
        return odd.reshape(np.shape(total)).astype(F32)


def tanh(x):
    x = np.asarray(x, F32)
    with np.errstate(all="ignore"):
        a = np.abs(x)
        a = np.where(a > 10, F32(10), a)
        j = fma(a, F32(-2) * LOG2E, MAGIC)
        n = j - MAGIC
        r = fma(n, LN2_HIGH / F32(2), a)
        r = fma(n, LN2_LOW / F32(2), r)
        q = TANH_COEFFICIENTS[0]
        for coefficient in TANH_COEFFICIENTS[1:]:
            q = fma(q, r, coefficient)
        p = fma(r * r, q, F32(-2) * r)
        exponent = j.view(np.uint32) - MAGIC.view(np.uint32) + np.uint32(127)
        s = (exponent << np.uint32(23)).view(F32)
        u = fma(s, p, s - F32(1))
        d = F32(2) + u
        low = (F32(2) - d) + u
        y = F32(1) / d
        t = -u * y
        e = fma(-t, d, -u)
        e = fma(-t, low, e)
        t = fma(e, y, t)
        return np.copysign(t, x)


def cast(value, dtype):
    """One rounding to the dtype; a NaN becomes the canonical one."""
    dtype = np.dtype(dtype)
    with np.errstate(all="ignore"):
        result = np.array(value, F32).astype(dtype)
    bits = result.reshape(-1).view(np.uint32 if dtype.itemsize == 4 else np.uint16)
    nan = np.isnan(np.asarray(value, F32)).reshape(-1)
    bits[nan] = 0x7FFFFFFF if dtype.itemsize == 4 else 0x7FFF
    return result


def forward(x, softcap, output_dtype=F32):
    cap = F32(softcap)
    with np.errstate(all="ignore"):
        return cast(cap * tanh(x.astype(F32) / cap), output_dtype)


def backward(x, grad_y, softcap):
    with np.errstate(all="ignore"):
        t = tanh(x.astype(F32) / F32(softcap))
        return cast(grad_y.astype(F32) * fma(-t, t, F32(1)), x.dtype)


BF16 = np.dtype(ml_dtypes.bfloat16)
