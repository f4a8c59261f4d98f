// The arithmetic of the RMSNorm family element by element, for host and device. README.md states
// the contracts; here each line of them is one function.
//
// x32, w32, dy32, z32 are exact up-conversions, r is the row statistic, xh = mul(x32, r).
#pragma once

#include <cstdint>

#include "kernels/arith/convert.h"
#include "kernels/arith/functions.h"

namespace rlk::rms_norm {

// Where the casts are. kPlain and kGated are FP32 with one cast at the end (leftfold-v1 and
// chunk128-v1); kHf and kGatedHf cast where transformers does (hf-v1).
enum class Convention : uint8_t { kPlain, kHf, kGated, kGatedHf };
inline constexpr int kConventionCount = 4;

enum class Activation : uint8_t { kSilu, kSigmoid };

// Storage types of a tensor, and one conversion to it and back.
struct F32 {
  using Storage = float;
  RLK_HD float Load(float x) { return x; }
  RLK_HD float Store(float x) { return arith::Canonical(x); }
  RLK_HD float Round(float x) { return x; }
};
struct F16 {
  using Storage = uint16_t;
  RLK_HD float Load(uint16_t x) { return arith::F16ToFloat(x); }
  RLK_HD uint16_t Store(float x) { return arith::FloatToF16(x); }
  RLK_HD float Round(float x) { return Load(Store(x)); }
};
struct Bf16 {
  using Storage = uint16_t;
  RLK_HD float Load(uint16_t x) { return arith::Bf16ToFloat(x); }
  RLK_HD uint16_t Store(float x) { return arith::FloatToBf16(x); }
  RLK_HD float Round(float x) { return Load(Store(x)); }
};

// Row statistic from the row sum of squares.
RLK_HD float RowStatistic(float sum_of_squares, float length, float eps) {
  return arith::Rsqrt(arith::Add(arith::Div(sum_of_squares, length), eps));
}

// The weight with its offset; an offset of 0 leaves -0 as it is.
RLK_HD float OffsetWeight(float w, float offset) {
  return offset != 0.0f ? arith::Add(w, offset) : w;
}

struct Gate {
  float sigmoid;
  float value;  // act(z)
};

RLK_HD Gate EvaluateGate(float z, Activation activation) {
  const float s = arith::Sigmoid(z);
  return {s, activation == Activation::kSilu ? arith::Mul(z, s) : s};
}

// act'(z).
RLK_HD float GateSlope(float z, float sigmoid, Activation activation) {
  const float rest = arith::Sub(1.0f, sigmoid);
  return activation == Activation::kSilu ? arith::Mul(sigmoid, arith::Fma(z, rest, 1.0f))
                                         : arith::Mul(sigmoid, rest);
}

// y before its cast. T is x's dtype; `round_weighted` is true where the weight has dtype T; `w` is
// OffsetWeight for kPlain and kGated, the plain weight for the others.
template <Convention kConvention, typename T>
RLK_HD float Forward(float x, float r, float w, float z, Activation activation,
                     bool round_weighted) {
  using arith::Mul;
  const float xh = Mul(x, r);
  if constexpr (kConvention == Convention::kPlain) {
    return Mul(xh, w);
  } else if constexpr (kConvention == Convention::kHf) {
    return Mul(w, T::Round(xh));
  } else if constexpr (kConvention == Convention::kGated) {
    return Mul(Mul(xh, w), EvaluateGate(z, activation).value);
  } else {
    float m = Mul(w, T::Round(xh));
    if (round_weighted) m = T::Round(m);
    return Mul(m, EvaluateGate(z, Activation::kSilu).value);
  }
}

struct Terms {
  float xh;         // x normalised
  float g;          // gradient of xh
  float c;          // this row's term of the weight gradient
  float grad_gate;  // before its cast; gated conventions only
};

template <Convention kConvention, typename T>
RLK_HD Terms Backward(float x, float r, float w, float dy, float z, Activation activation,
                      bool round_weighted) {
  using arith::Mul;
  Terms terms = {};
  terms.xh = Mul(x, r);
  if constexpr (kConvention == Convention::kPlain) {
    terms.g = Mul(dy, w);
    terms.c = Mul(dy, terms.xh);
  } else if constexpr (kConvention == Convention::kHf) {
    terms.g = T::Round(Mul(dy, w));
    terms.c = T::Round(Mul(dy, T::Round(terms.xh)));
  } else if constexpr (kConvention == Convention::kGated) {
    const Gate gate = EvaluateGate(z, activation);
    const float b = Mul(dy, gate.value);
    terms.g = Mul(b, w);
    terms.c = Mul(b, terms.xh);
    terms.grad_gate = Mul(Mul(dy, Mul(terms.xh, w)), GateSlope(z, gate.sigmoid, activation));
  } else {
    const Gate gate = EvaluateGate(z, Activation::kSilu);
    const float n = T::Round(terms.xh);
    float m = Mul(w, n);
    float dm = Mul(dy, gate.value);
    if (round_weighted) {
      m = T::Round(m);
      dm = T::Round(dm);
    }
    const float da = Mul(dy, m);
    terms.grad_gate =
        Mul(Mul(da, gate.sigmoid), arith::Fma(z, arith::Sub(1.0f, gate.sigmoid), 1.0f));
    terms.c = Mul(dm, n);
    if (round_weighted) terms.c = T::Round(terms.c);
    terms.g = T::Round(Mul(w, dm));
  }
  return terms;
}

// grad_x before its cast; k = div(rowsum(g, xh), H).
RLK_HD float GradX(const Terms& terms, float r, float k) {
  return arith::Mul(r, arith::Fma(arith::Neg(terms.xh), k, terms.g));
}

}  // namespace rlk::rms_norm
