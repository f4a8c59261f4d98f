#!/usr/bin/env python3
"""Writes the known-answer vectors of kernels/arith/known_answer_vectors.h to stdout; with --check FILE
compares those of FILE.

Every operation is done on exact rationals and rounded once to FP32, to nearest even. It shares no
code with the kernels and follows the text of kernels/arith/README.md.
"""
import sys
from fractions import Fraction
from math import isqrt

NAN, INF = "nan", "inf"


def value(bits):
    """(sign, Fraction | INF | NAN) of FP32 bits."""
    sign, exponent, fraction = bits >> 31, (bits >> 23) & 255, bits & 0x7FFFFF
    if exponent == 255:
        return sign, NAN if fraction else INF
    if exponent == 0:
        return sign, Fraction(fraction) * Fraction(1, 2**149)
    return sign, Fraction(fraction + 0x800000) * Fraction(2) ** (exponent - 150)


def round_bits(sign, x, exponent_bits=8, fraction_bits=23):
    """Bits of |x| >= 0 rounded once to nearest even."""
    bias = 2 ** (exponent_bits - 1) - 1
    top = sign << (exponent_bits + fraction_bits)
    if x == 0:
        return top
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    if Fraction(2) ** exponent > x:
        exponent -= 1
    exponent = max(exponent, 1 - bias)
    scaled = x / Fraction(2) ** (exponent - fraction_bits)
    n, rest = divmod(scaled.numerator, scaled.denominator)
    twice = 2 * rest
    if twice > scaled.denominator or (twice == scaled.denominator and n & 1):
        n += 1
    bits = n + ((exponent + bias - 1) << fraction_bits)
    return top | min(bits, ((1 << exponent_bits) - 1) << fraction_bits)


CANONICAL = 0x7FFFFFFF


def signed(bits):
    sign, x = value(bits)
    return -x if sign else x


def finite(*operands):
    return all(not isinstance(value(b)[1], str) for b in operands)


def from_exact(x, zero_sign=0):
    return round_bits(1, -x) if x < 0 else round_bits(zero_sign if x == 0 else 0, x)


def fma(a, b, c):
    if not finite(a, b, c):
        (sa, va), (sb, vb), (sc, vc) = value(a), value(b), value(c)
        if NAN in (va, vb, vc) or (INF in (va, vb) and 0 in (va, vb)):
            return CANONICAL
        if INF in (va, vb):
            product_sign = sa ^ sb
            return CANONICAL if vc == INF and sc != product_sign else (product_sign << 31) | 0x7F800000
        return c
    exact = signed(a) * signed(b) + signed(c)
    product_sign = (a >> 31) ^ (b >> 31)
    both_negative = product_sign and (c >> 31)
    return from_exact(exact, zero_sign=1 if both_negative else 0)


ONE, NEG_ZERO = 0x3F800000, 0x80000000


def mul(a, b):
    bits = fma(a, b, 0)
    if bits & 0x7FFFFFFF == 0:
        return ((a >> 31) ^ (b >> 31)) << 31
    return bits


def add(a, b):
    return fma(a, ONE, b)


def neg(a):
    return a ^ 0x80000000


def sub(a, b):
    return add(a, neg(b))


def div(a, b):
    sign = (a ^ b) >> 31
    (_, x), (_, y) = value(a), value(b)
    if NAN in (x, y) or (x == INF and y == INF) or (x == 0 and y == 0):
        return CANONICAL
    if x == INF or y == 0:
        return (sign << 31) | 0x7F800000
    if y == INF:
        return sign << 31
    return round_bits(sign, x / y)


def rsqrt(a):
    sign, x = value(a)
    if x == 0:
        return (sign << 31) | 0x7F800000
    if x == NAN or sign:
        return CANONICAL
    if x == INF:
        return 0
    # 1 / sqrt(x) to 200 bits, with a sticky last bit.
    scale = 2**200
    inverse = 1 / x
    n = isqrt(inverse.numerator * scale * scale // inverse.denominator)
    return round_bits(0, Fraction(2 * n + 1, 2 * scale) if Fraction(n, scale) ** 2 != inverse else Fraction(n, scale))


def const(text):
    return from_exact(Fraction(float.fromhex(text)))


L2E, LH, LL = const("0x1.715476p+0"), const("0x1.62e430p-1"), const("-0x1.05c610p-29")
M = 0x4B400000
MASK = 0xFFFFFFFF


def horner(q, r, coefficients):
    q = const(q)
    for c in coefficients:
        q = fma(q, r, const(c))
    return q


def greater(a, b):
    return value(a)[1] != NAN and (value(a)[1] == INF and not a >> 31 or
                                   value(a)[1] != INF and signed(a) > signed(b))


def less(a, b):
    return value(a)[1] != NAN and (value(a)[1] == INF and a >> 31 == 1 or
                                   value(a)[1] != INF and signed(a) < signed(b))


def exp(x):
    hi, lo = from_exact(Fraction(89)), from_exact(Fraction(-104))
    a = hi if greater(x, hi) else x
    a = lo if less(a, lo) else a
    if value(a)[1] == NAN:
        return CANONICAL
    j = fma(a, L2E, M)
    n = sub(j, M)
    r = fma(n, neg(LH), a)
    r = fma(n, neg(LL), r)
    q = horner("0x1.6a4d70p-10", r, ["0x1.1239aap-7", "0x1.5558b2p-5", "0x1.555492p-3",
                                     "0x1.fffffcp-2", "1", "1"])
    k = j - M
    h = k >> 1
    return mul(mul(q, (h + 127) << 23), (k - h + 127) << 23)


def sigmoid(z):
    e = exp(z | 0x80000000)
    y = div(ONE, add(ONE, e))
    return mul(e, y) if less(z, 0) else y


def silu(z):
    return mul(z, sigmoid(z))


def tanh(x):
    if value(x)[1] == NAN:
        return CANONICAL
    a = x & 0x7FFFFFFF
    ten = from_exact(Fraction(10))
    a = ten if greater(a, ten) else a
    j = fma(a, const("-0x1.715476p+1"), M)
    n = sub(j, M)
    r = fma(n, const("0x1.62e430p-2"), a)
    r = fma(n, const("-0x1.05c610p-30"), r)
    q = horner("-0x1.9d55e2p-6", r, ["0x1.6d42a4p-4", "-0x1.11135ep-2", "0x1.5554f0p-1",
                                     "-0x1.555554p+0", "2"])
    two = from_exact(Fraction(2))
    p = fma(mul(r, r), q, mul(neg(two), r))
    s = ((j - M + 127) << 23) & MASK
    u = fma(s, p, sub(s, ONE))
    d = add(two, u)
    dl = add(sub(two, d), u)
    y = div(ONE, d)
    t = mul(neg(u), y)
    e = fma(neg(t), d, neg(u))
    e = fma(neg(t), dl, e)
    t = fma(e, y, t)
    return (t & 0x7FFFFFFF) | (x & 0x80000000)


def log1p(x):
    sign, v = value(x)
    if v == NAN or (sign and (v == INF or v > 1)):
        return CANONICAL
    if sign and v == 1:
        return 0xFF800000
    if v == 0 or v == INF:
        return x
    u = add(x, ONE)
    e = ((u - 0x3F400000) & MASK) & 0xFF800000
    m = add((x - e) & MASK, fma(const("0x1p-2"), (0x40800000 - e) & MASK, neg(ONE)))
    q = horner("-0x1.700404p-5", m, ["0x1.ac17b2p-4", "-0x1.0d99c4p-3", "0x1.2898aep-3",
                                     "-0x1.54f1aep-3", "0x1.99686cp-3", "-0x1.000030p-2",
                                     "0x1.5555a6p-2", "-0x1p-1"])
    l = fma(mul(m, m), q, m)
    integer = e - (1 << 32) if e >> 31 else e
    k = mul(from_exact(Fraction(integer)), const("0x1p-23"))
    return fma(k, LH, fma(k, LL, l))


def angle(x):
    j = fma(x, const("0x1.45f306p-1"), M)
    n = sub(j, M)
    r = fma(n, const("-0x1.921fb6p+0"), x)
    r = fma(n, const("0x1.777a5cp-25"), r)
    r = fma(n, const("0x1.ee59dap-50"), r)
    z = mul(r, r)
    q = horner("0x1.7c0d3cp-19", z, ["-0x1.a05954p-13", "0x1.111174p-7", "-0x1.555556p-3"])
    sine = fma(mul(z, q), r, r)
    cosine = horner("0x1.99e5cap-16", z, ["-0x1.6c0c28p-10", "0x1.55554ap-5", "-0x1p-1", "1"])
    return j, sine, cosine


def sin(x):
    k, s, c = angle(x)
    v = c if k & 1 else s
    return neg(v) if k & 2 else v


def cos(x):
    k, s, c = angle(x)
    v = s if k & 1 else c
    return neg(v) if (k + 1) & 2 else v


def cast16(exponent_bits, fraction_bits):
    def cast(x):
        sign, v = value(x)
        if v == NAN:
            return 0x7FFF
        if v == INF:
            return (sign << 15) | (((1 << exponent_bits) - 1) << fraction_bits)
        return round_bits(sign, v, exponent_bits, fraction_bits)
    return cast


def from_f16(h):
    sign, exponent, fraction = h >> 15, (h >> 10) & 31, h & 1023
    if exponent == 31:
        return (sign << 31) | 0x7F800000 | (fraction << 13)
    v = Fraction(fraction, 2**24) if exponent == 0 else Fraction(fraction + 1024) * Fraction(2) ** (exponent - 25)
    return round_bits(sign, v)


UNARY = {
    "Rsqrt": rsqrt, "RcpOneToTwo": lambda d: div(ONE, d), "ToBf16": cast16(8, 7), "ToF16": cast16(5, 10),
    "FromF16": from_f16, "Exp": exp, "Tanh": tanh, "Sigmoid": sigmoid, "Silu": silu, "Log1p": log1p,
    "Sin": sin, "Cos": cos,
}
BINARY = {"Add": add, "Sub": sub, "Mul": mul, "Div": div}
TERNARY = {"Fma": fma, "MulThenAdd": lambda a, b, c: add(mul(a, b), c)}


def f(text):
    if text in ("inf", "-inf"):
        return 0x7F800000 | (text[0] == "-") << 31
    if text.startswith("bits:"):
        return int(text[5:], 16)
    if text == "-0":
        return NEG_ZERO
    return const(text)


# The comments say what a wrong bit means.
CASES = [
    ("ties go to even, not up or down", [
        ("Add", "1", "0x1p-24"), ("Add", "0x1.000002p+0", "0x1p-24"), ("Add", "-1", "-0x1p-24"),
        ("Sub", "1", "0x1p-25"), ("Add", "0x1.fffffep+127", "0x1p+103"), ("Mul", "0x1.000002p+0", "0x1.000002p+0"),
        ("Add", "1", "-1"), ("Add", "-0", "-0"), ("Sub", "0x1p-24", "-1")]),
    ("rounding is to nearest: each directed mode fails one of these", [
        ("Div", "1", "3"), ("Div", "-1", "3"), ("Div", "2", "3"), ("Div", "1", "30"), ("Div", "7", "20")]),
    ("subnormal inputs and results are kept", [
        ("Add", "0x1p-149", "0x1p-149"), ("Sub", "0x1p-126", "0x1p-149"), ("Mul", "0x1p-100", "0x1p-49"),
        ("Mul", "0x1p-149", "0x1p+24"), ("Mul", "0x1.8p-75", "0x1p-75"), ("Div", "0x1p-126", "3"),
        ("Fma", "0x1p-80", "0x1p-69", "0x1p-149"), ("Div", "0x1p-149", "0x1p-149")]),
    ("an fma rounds once; a product and a sum round twice", [
        ("Fma", "0x1.001p+0", "0x1.001p+0", "-0x1.002p+0"), ("MulThenAdd", "0x1.001p+0", "0x1.001p+0", "-0x1.002p+0"),
        ("Fma", "0x1.fffffep+0", "0x1.fffffep+0", "-4"), ("MulThenAdd", "0x1.fffffep+0", "0x1.fffffep+0", "-4"),
        ("Fma", "-1", "1", "1"), ("Fma", "inf", "0", "1")]),
    ("specials", [
        ("Div", "1", "0"), ("Div", "0", "0"), ("Sub", "inf", "inf"), ("Mul", "inf", "-0"), ("Add", "bits:7fa00001", "1"),
        ("Div", "-inf", "30")]),
    ("correctly rounded, where 1 / sqrtf is not", [
        ("Rsqrt", "2"), ("Rsqrt", "3"), ("Rsqrt", "0x1.fffffep-1"), ("Rsqrt", "0x1p-149"), ("Rsqrt", "0x1.8p-20"),
        ("Rsqrt", "-1"), ("Rsqrt", "0"), ("Rsqrt", "7"),
        ("RcpOneToTwo", "1"), ("RcpOneToTwo", "0x1.000002p+0"), ("RcpOneToTwo", "0x1.8p+0"),
        ("RcpOneToTwo", "0x1.fffffep+0"), ("RcpOneToTwo", "2")]),
    ("casts: ties, subnormals, overflow, NaN", [
        ("ToBf16", "0x1.01p+0"), ("ToBf16", "0x1.03p+0"), ("ToBf16", "0x1p-133"), ("ToBf16", "0x1p-149"),
        ("ToBf16", "0x1.ffp+127"), ("ToBf16", "0x1.fefffep+127"), ("ToBf16", "bits:ffc00000"),
        ("ToF16", "0x1.002p+0"), ("ToF16", "0x1.006p+0"), ("ToF16", "0x1p-24"), ("ToF16", "0x1p-25"),
        ("ToF16", "0x1.000002p-25"), ("ToF16", "65520"), ("ToF16", "-65519"), ("ToF16", "bits:7f800001"),
        ("FromF16", "bits:0001"), ("FromF16", "bits:83ff"), ("FromF16", "bits:7bff"), ("FromF16", "bits:fc00")]),
    ("functions", [
        ("Exp", "1"), ("Exp", "-0.5"), ("Exp", "88.5"), ("Exp", "-100"), ("Exp", "-103.9"), ("Exp", "inf"), ("Exp", "-inf"),
        ("Tanh", "0.5"), ("Tanh", "-1.25"), ("Tanh", "8.4"), ("Tanh", "20"), ("Tanh", "-0"), ("Tanh", "0x1p-130"), ("Tanh", "bits:7fc00001"),
        ("Sigmoid", "1.5"), ("Sigmoid", "-7.25"), ("Silu", "-3.125"), ("Silu", "0.7"), ("Log1p", "0.3"), ("Log1p", "-0.75"), ("Log1p", "1e6"),
        ("Log1p", "-1"), ("Sin", "1"), ("Sin", "100000.5"), ("Cos", "1"), ("Cos", "-262143.25")]),
]


def text(token):
    if token.startswith("bits:") or token in ("inf", "-inf", "-0") or "x" in token:
        return f(token)
    return from_exact(Fraction(token))


def rows():
    """The lines of the table, comments included."""
    for comment, cases in CASES:
        yield f"    // {comment}"
        for op, *operands in cases:
            bits = [text(o) for o in operands]
            function = {1: UNARY, 2: BINARY, 3: TERNARY}[len(bits)][op]
            expected = function(*bits)
            bits += [0] * (3 - len(bits))
            a, b, c = bits
            yield f"    {{KnownAnswerOp::k{op}, 0x{a:08x}u, 0x{b:08x}u, 0x{c:08x}u, 0x{expected:08x}u}},"


def check(path):
    """The committed table's rows are exactly these."""
    with open(path, encoding="utf-8") as file:
        _, _, table = file.read().partition("kKnownAnswers[] = {\n")
    committed = table.partition("\n};")[0].split("\n")
    wanted = list(rows())
    for got, want in zip(committed, wanted):
        if got != want:
            sys.exit(f"{path}:\n{got}\nshould be\n{want}")
    if len(committed) != len(wanted):
        sys.exit(f"{path}: {len(committed)} rows instead of {len(wanted)}")
    print(f"{len(wanted)} rows")


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--check":
        check(sys.argv[2])
    else:
        print("\n".join(rows()))


if __name__ == "__main__":
    main()
