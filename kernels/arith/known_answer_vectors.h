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
    {KnownAnswerOp::kAdd, 0x3f800000u, 0x33800000u, 0, 0x3f800000u},
    // KNOWN_ANSWERS_END
};
inline constexpr int kKnownAnswerCount = sizeof(kKnownAnswers) / sizeof(kKnownAnswers[0]);

}  // namespace rlk::arith
