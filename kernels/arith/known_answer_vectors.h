// Known-answer vectors: scalar arithmetic, rounding mode, subnormals, contraction, casts and
// functions, with the bits that every backend must give before it registers. The expected bits
// come from tests/unit/kernels/known_answers.py (exact rational arithmetic).
#pragma once

#include "kernels/arith/convert.h"
#include "kernels/arith/functions.h"

namespace rlk::arith {

enum class KnownAnswerOp : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFma,
  kMulThenAdd,  // two roundings: wrong where the compiler contracts
  kRsqrt,
  kRcpOneToTwo,
  kToBf16,
  kToF16,
  kFromF16,
  kExp,
  kTanh,
  kSigmoid,
  kSilu,
  kLog1p,
  kSin,
  kCos,
};

struct KnownAnswer {
  KnownAnswerOp op;
  uint32_t a, b, c;  // bits of the operands
  uint32_t expected;
};

// Bits of the result, NaN canonical.
RLK_HD uint32_t EvaluateKnownAnswer(const KnownAnswer& vector) {
  const float a = BitsFloat(vector.a), b = BitsFloat(vector.b), c = BitsFloat(vector.c);
  switch (vector.op) {
    case KnownAnswerOp::kAdd:
      return FloatBits(Canonical(Add(a, b)));
    case KnownAnswerOp::kSub:
      return FloatBits(Canonical(Sub(a, b)));
    case KnownAnswerOp::kMul:
      return FloatBits(Canonical(Mul(a, b)));
    case KnownAnswerOp::kDiv:
      return FloatBits(Canonical(Div(a, b)));
    case KnownAnswerOp::kFma:
      return FloatBits(Canonical(Fma(a, b, c)));
    case KnownAnswerOp::kMulThenAdd:
      return FloatBits(Canonical(Add(Mul(a, b), c)));
    case KnownAnswerOp::kRsqrt:
      return FloatBits(Canonical(Rsqrt(a)));
    case KnownAnswerOp::kRcpOneToTwo:
      return FloatBits(Canonical(RcpOneToTwo(a)));
    case KnownAnswerOp::kToBf16:
      return FloatToBf16(a);
    case KnownAnswerOp::kToF16:
      return FloatToF16(a);
    case KnownAnswerOp::kFromF16:
      return FloatBits(F16ToFloat(static_cast<uint16_t>(vector.a)));
    case KnownAnswerOp::kExp:
      return FloatBits(Canonical(Exp(a)));
    case KnownAnswerOp::kTanh:
      return FloatBits(Canonical(Tanh(a)));
    case KnownAnswerOp::kSigmoid:
      return FloatBits(Canonical(Sigmoid(a)));
    case KnownAnswerOp::kSilu:
      return FloatBits(Canonical(Silu(a)));
    case KnownAnswerOp::kLog1p:
      return FloatBits(Canonical(Log1p(a)));
    case KnownAnswerOp::kSin:
      return FloatBits(Canonical(Sin(a)));
    case KnownAnswerOp::kCos:
      return FloatBits(Canonical(Cos(a)));
  }
  return 0;
}

inline constexpr KnownAnswer kKnownAnswers[] = {
    // ties go to even, not up or down
    {KnownAnswerOp::kAdd, 0x3f800000u, 0x33800000u, 0x00000000u, 0x3f800000u},
    {KnownAnswerOp::kAdd, 0x3f800001u, 0x33800000u, 0x00000000u, 0x3f800002u},
    {KnownAnswerOp::kAdd, 0xbf800000u, 0xb3800000u, 0x00000000u, 0xbf800000u},
    {KnownAnswerOp::kSub, 0x3f800000u, 0x33000000u, 0x00000000u, 0x3f800000u},
    {KnownAnswerOp::kAdd, 0x7f7fffffu, 0x73000000u, 0x00000000u, 0x7f800000u},
    {KnownAnswerOp::kMul, 0x3f800001u, 0x3f800001u, 0x00000000u, 0x3f800002u},
    {KnownAnswerOp::kAdd, 0x3f800000u, 0xbf800000u, 0x00000000u, 0x00000000u},
    {KnownAnswerOp::kAdd, 0x80000000u, 0x80000000u, 0x00000000u, 0x80000000u},
    {KnownAnswerOp::kSub, 0x33800000u, 0xbf800000u, 0x00000000u, 0x3f800000u},
    // rounding is to nearest: each directed mode fails one of these
    {KnownAnswerOp::kDiv, 0x3f800000u, 0x40400000u, 0x00000000u, 0x3eaaaaabu},
    {KnownAnswerOp::kDiv, 0xbf800000u, 0x40400000u, 0x00000000u, 0xbeaaaaabu},
    {KnownAnswerOp::kDiv, 0x40000000u, 0x40400000u, 0x00000000u, 0x3f2aaaabu},
    {KnownAnswerOp::kDiv, 0x3f800000u, 0x41f00000u, 0x00000000u, 0x3d088889u},
    {KnownAnswerOp::kDiv, 0x40e00000u, 0x41a00000u, 0x00000000u, 0x3eb33333u},
    // subnormal inputs and results are kept
    {KnownAnswerOp::kAdd, 0x00000001u, 0x00000001u, 0x00000000u, 0x00000002u},
    {KnownAnswerOp::kSub, 0x00800000u, 0x00000001u, 0x00000000u, 0x007fffffu},
    {KnownAnswerOp::kMul, 0x0d800000u, 0x27000000u, 0x00000000u, 0x00000001u},
    {KnownAnswerOp::kMul, 0x00000001u, 0x4b800000u, 0x00000000u, 0x01000000u},
    {KnownAnswerOp::kMul, 0x1a400000u, 0x1a000000u, 0x00000000u, 0x00000001u},
    {KnownAnswerOp::kDiv, 0x00800000u, 0x40400000u, 0x00000000u, 0x002aaaabu},
    {KnownAnswerOp::kFma, 0x17800000u, 0x1d000000u, 0x00000001u, 0x00000002u},
    {KnownAnswerOp::kDiv, 0x00000001u, 0x00000001u, 0x00000000u, 0x3f800000u},
    // an fma rounds once; a product and a sum round twice
    {KnownAnswerOp::kFma, 0x3f800800u, 0x3f800800u, 0xbf801000u, 0x33800000u},
    {KnownAnswerOp::kMulThenAdd, 0x3f800800u, 0x3f800800u, 0xbf801000u, 0x00000000u},
    {KnownAnswerOp::kFma, 0x3fffffffu, 0x3fffffffu, 0xc0800000u, 0xb5000000u},
    {KnownAnswerOp::kMulThenAdd, 0x3fffffffu, 0x3fffffffu, 0xc0800000u, 0xb5000000u},
    {KnownAnswerOp::kFma, 0xbf800000u, 0x3f800000u, 0x3f800000u, 0x00000000u},
    {KnownAnswerOp::kFma, 0x7f800000u, 0x00000000u, 0x3f800000u, 0x7fffffffu},
    // specials
    {KnownAnswerOp::kDiv, 0x3f800000u, 0x00000000u, 0x00000000u, 0x7f800000u},
    {KnownAnswerOp::kDiv, 0x00000000u, 0x00000000u, 0x00000000u, 0x7fffffffu},
    {KnownAnswerOp::kSub, 0x7f800000u, 0x7f800000u, 0x00000000u, 0x7fffffffu},
    {KnownAnswerOp::kMul, 0x7f800000u, 0x80000000u, 0x00000000u, 0x7fffffffu},
    {KnownAnswerOp::kAdd, 0x7fa00001u, 0x3f800000u, 0x00000000u, 0x7fffffffu},
    {KnownAnswerOp::kDiv, 0xff800000u, 0x41f00000u, 0x00000000u, 0xff800000u},
    // correctly rounded, where 1 / sqrtf is not
    {KnownAnswerOp::kRsqrt, 0x40000000u, 0x00000000u, 0x00000000u, 0x3f3504f3u},
    {KnownAnswerOp::kRsqrt, 0x40400000u, 0x00000000u, 0x00000000u, 0x3f13cd3au},
    {KnownAnswerOp::kRsqrt, 0x3f7fffffu, 0x00000000u, 0x00000000u, 0x3f800000u},
    {KnownAnswerOp::kRsqrt, 0x00000001u, 0x00000000u, 0x00000000u, 0x64b504f3u},
    {KnownAnswerOp::kRsqrt, 0x35c00000u, 0x00000000u, 0x00000000u, 0x445105ecu},
    {KnownAnswerOp::kRsqrt, 0xbf800000u, 0x00000000u, 0x00000000u, 0x7fffffffu},
    {KnownAnswerOp::kRsqrt, 0x00000000u, 0x00000000u, 0x00000000u, 0x7f800000u},
    {KnownAnswerOp::kRsqrt, 0x40e00000u, 0x00000000u, 0x00000000u, 0x3ec1848fu},
    {KnownAnswerOp::kRcpOneToTwo, 0x3f800000u, 0x00000000u, 0x00000000u, 0x3f800000u},
    {KnownAnswerOp::kRcpOneToTwo, 0x3f800001u, 0x00000000u, 0x00000000u, 0x3f7ffffeu},
    {KnownAnswerOp::kRcpOneToTwo, 0x3fc00000u, 0x00000000u, 0x00000000u, 0x3f2aaaabu},
    {KnownAnswerOp::kRcpOneToTwo, 0x3fffffffu, 0x00000000u, 0x00000000u, 0x3f000001u},
    {KnownAnswerOp::kRcpOneToTwo, 0x40000000u, 0x00000000u, 0x00000000u, 0x3f000000u},
    // casts: ties, subnormals, overflow, NaN
    {KnownAnswerOp::kToBf16, 0x3f808000u, 0x00000000u, 0x00000000u, 0x00003f80u},
    {KnownAnswerOp::kToBf16, 0x3f818000u, 0x00000000u, 0x00000000u, 0x00003f82u},
    {KnownAnswerOp::kToBf16, 0x00010000u, 0x00000000u, 0x00000000u, 0x00000001u},
    {KnownAnswerOp::kToBf16, 0x00000001u, 0x00000000u, 0x00000000u, 0x00000000u},
    {KnownAnswerOp::kToBf16, 0x7f7f8000u, 0x00000000u, 0x00000000u, 0x00007f80u},
    {KnownAnswerOp::kToBf16, 0x7f7f7fffu, 0x00000000u, 0x00000000u, 0x00007f7fu},
    {KnownAnswerOp::kToBf16, 0xffc00000u, 0x00000000u, 0x00000000u, 0x00007fffu},
    {KnownAnswerOp::kToF16, 0x3f801000u, 0x00000000u, 0x00000000u, 0x00003c00u},
    {KnownAnswerOp::kToF16, 0x3f803000u, 0x00000000u, 0x00000000u, 0x00003c02u},
    {KnownAnswerOp::kToF16, 0x33800000u, 0x00000000u, 0x00000000u, 0x00000001u},
    {KnownAnswerOp::kToF16, 0x33000000u, 0x00000000u, 0x00000000u, 0x00000000u},
    {KnownAnswerOp::kToF16, 0x33000001u, 0x00000000u, 0x00000000u, 0x00000001u},
    {KnownAnswerOp::kToF16, 0x477ff000u, 0x00000000u, 0x00000000u, 0x00007c00u},
    {KnownAnswerOp::kToF16, 0xc77fef00u, 0x00000000u, 0x00000000u, 0x0000fbffu},
    {KnownAnswerOp::kToF16, 0x7f800001u, 0x00000000u, 0x00000000u, 0x00007fffu},
    {KnownAnswerOp::kFromF16, 0x00000001u, 0x00000000u, 0x00000000u, 0x33800000u},
    {KnownAnswerOp::kFromF16, 0x000083ffu, 0x00000000u, 0x00000000u, 0xb87fc000u},
    {KnownAnswerOp::kFromF16, 0x00007bffu, 0x00000000u, 0x00000000u, 0x477fe000u},
    {KnownAnswerOp::kFromF16, 0x0000fc00u, 0x00000000u, 0x00000000u, 0xff800000u},
    // functions
    {KnownAnswerOp::kExp, 0x3f800000u, 0x00000000u, 0x00000000u, 0x402df854u},
    {KnownAnswerOp::kExp, 0xbf000000u, 0x00000000u, 0x00000000u, 0x3f1b4598u},
    {KnownAnswerOp::kExp, 0x42b10000u, 0x00000000u, 0x00000000u, 0x7f4cdcc3u},
    {KnownAnswerOp::kExp, 0xc2c80000u, 0x00000000u, 0x00000000u, 0x0000001bu},
    {KnownAnswerOp::kExp, 0xc2cfcccdu, 0x00000000u, 0x00000000u, 0x00000001u},
    {KnownAnswerOp::kExp, 0x7f800000u, 0x00000000u, 0x00000000u, 0x7f800000u},
    {KnownAnswerOp::kExp, 0xff800000u, 0x00000000u, 0x00000000u, 0x00000000u},
    {KnownAnswerOp::kTanh, 0x3f000000u, 0x00000000u, 0x00000000u, 0x3eec9a9eu},
    {KnownAnswerOp::kTanh, 0xbfa00000u, 0x00000000u, 0x00000000u, 0xbf59291du},
    {KnownAnswerOp::kTanh, 0x41066666u, 0x00000000u, 0x00000000u, 0x3f7ffffeu},
    {KnownAnswerOp::kTanh, 0x41a00000u, 0x00000000u, 0x00000000u, 0x3f800000u},
    {KnownAnswerOp::kTanh, 0x80000000u, 0x00000000u, 0x00000000u, 0x80000000u},
    {KnownAnswerOp::kTanh, 0x00080000u, 0x00000000u, 0x00000000u, 0x00080000u},
    {KnownAnswerOp::kTanh, 0x7fc00001u, 0x00000000u, 0x00000000u, 0x7fffffffu},
    {KnownAnswerOp::kSigmoid, 0x3fc00000u, 0x00000000u, 0x00000000u, 0x3f514c8fu},
    {KnownAnswerOp::kSigmoid, 0xc0e80000u, 0x00000000u, 0x00000000u, 0x3a3a092du},
    {KnownAnswerOp::kSilu, 0xc0480000u, 0x00000000u, 0x00000000u, 0xbe06ae45u},
    {KnownAnswerOp::kSilu, 0x3f333333u, 0x00000000u, 0x00000000u, 0x3eef7a7eu},
    {KnownAnswerOp::kLog1p, 0x3e99999au, 0x00000000u, 0x00000000u, 0x3e86549cu},
    {KnownAnswerOp::kLog1p, 0xbf400000u, 0x00000000u, 0x00000000u, 0xbfb17218u},
    {KnownAnswerOp::kLog1p, 0x49742400u, 0x00000000u, 0x00000000u, 0x415d0c56u},
    {KnownAnswerOp::kLog1p, 0xbf800000u, 0x00000000u, 0x00000000u, 0xff800000u},
    {KnownAnswerOp::kSin, 0x3f800000u, 0x00000000u, 0x00000000u, 0x3f576aa5u},
    {KnownAnswerOp::kSin, 0x47c35040u, 0x00000000u, 0x00000000u, 0xbee53f0au},
    {KnownAnswerOp::kCos, 0x3f800000u, 0x00000000u, 0x00000000u, 0x3f0a5140u},
    {KnownAnswerOp::kCos, 0xc87fffd0u, 0x00000000u, 0x00000000u, 0xbf495346u},
};
inline constexpr int kKnownAnswerCount = sizeof(kKnownAnswers) / sizeof(kKnownAnswers[0]);

}  // namespace rlk::arith
