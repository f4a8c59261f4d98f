// Function set `f32-v1`: exp, tanh, sigmoid, silu, log1p, sin, cos from explicitly rounded FP32
// operations. Constants are bit patterns. kernels/arith/README.md has the measured errors.
#pragma once

#include "kernels/arith/scalar.h"

namespace rlk::arith {

inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kLn2High = 0x1.62e430p-1f;
inline constexpr float kLn2Low = -0x1.05c610p-29f;
// Adding it rounds to an integer, which then stands in the low bits.
inline constexpr float kRoundMagic = 12582912.0f;

RLK_HD float Exp(float x) {
  float a = x > 89.0f ? 89.0f : x;
  a = a < -104.0f ? -104.0f : a;  // NaN passes both comparisons
  const float j = Fma(a, kLog2E, kRoundMagic);
  const float n = Sub(j, kRoundMagic);
  float r = Fma(n, -kLn2High, a);
  r = Fma(n, -kLn2Low, r);
  float q = 0x1.6a4d70p-10f;
  q = Fma(q, r, 0x1.1239aap-7f);
  q = Fma(q, r, 0x1.5558b2p-5f);
  q = Fma(q, r, 0x1.555492p-3f);
  q = Fma(q, r, 0x1.fffffcp-2f);
  q = Fma(q, r, 1.0f);
  q = Fma(q, r, 1.0f);
  const int32_t k = static_cast<int32_t>(FloatBits(j) - FloatBits(kRoundMagic));
  const int32_t h = k >> 1;  // two steps, so that the scale factors stay normal
  const float first = BitsFloat(static_cast<uint32_t>(h + 127) << 23);
  const float second = BitsFloat(static_cast<uint32_t>(k - h + 127) << 23);
  return Mul(Mul(q, first), second);
}

// Exp(x) for x <= 0 and NaN, in fewer steps: one scale factor keeps the product exact and normal,
// the other rounds it once, as in Exp.
RLK_HD float ExpNonPositive(float x) {
#if defined(__CUDA_ARCH__)
  float a;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(a) : "f"(x), "f"(-104.0f));
#else
  const float a = x < -104.0f ? -104.0f : x;  // NaN passes
#endif
  const float j = Fma(a, kLog2E, kRoundMagic);
  const float n = Sub(j, kRoundMagic);
  float r = Fma(n, -kLn2High, a);
  r = Fma(n, -kLn2Low, r);
  float q = 0x1.6a4d70p-10f;
  q = Fma(q, r, 0x1.1239aap-7f);
  q = Fma(q, r, 0x1.5558b2p-5f);
  q = Fma(q, r, 0x1.555492p-3f);
  q = Fma(q, r, 0x1.fffffcp-2f);
  q = Fma(q, r, 1.0f);
  q = Fma(q, r, 1.0f);
  const uint32_t k = FloatBits(j) - FloatBits(kRoundMagic);  // -150 .. 0
  return Mul(Mul(q, BitsFloat((k + (127u + 64u)) << 23)), 0x1p-64f);
}

RLK_HD float Sigmoid(float z) {
  const float e = ExpNonPositive(Neg(Abs(z)));
  const float y = RcpOneToTwo(Add(1.0f, e));
  return z < 0.0f ? Mul(e, y) : y;
}

RLK_HD float Silu(float z) { return Mul(z, Sigmoid(z)); }
// From s = Sigmoid(z).
RLK_HD float SigmoidGrad(float s) { return Mul(s, Sub(1.0f, s)); }
RLK_HD float SiluGrad(float z) {
  const float s = Sigmoid(z);
  return Mul(s, Fma(z, Sub(1.0f, s), 1.0f));
}

// expm1(-2 r) = -2 r + r^2 (kTanhC0 + r (kTanhC1 + r (kTanhC2 + ..))).
inline constexpr float kTanhC0 = 2.0f;
inline constexpr float kTanhC1 = -0x1.555554p+0f;
inline constexpr float kTanhC2 = 0x1.5554f0p-1f;
inline constexpr float kTanhC3 = -0x1.11135ep-2f;
inline constexpr float kTanhC4 = 0x1.6d42a4p-4f;
inline constexpr float kTanhC5 = -0x1.9d55e2p-6f;

RLK_HD float Tanh(float x) {
  float a = Abs(x);
  a = a > 10.0f ? 10.0f : a;  // NaN passes
  const float j = Fma(a, -2.0f * kLog2E, kRoundMagic);
  const float n = Sub(j, kRoundMagic);
  float r = Fma(n, 0.5f * kLn2High, a);
  r = Fma(n, 0.5f * kLn2Low, r);  // a + n ln2 / 2
  float q = kTanhC5;
  q = Fma(q, r, kTanhC4);
  q = Fma(q, r, kTanhC3);
  q = Fma(q, r, kTanhC2);
  q = Fma(q, r, kTanhC1);
  q = Fma(q, r, kTanhC0);
  const float p = Fma(Mul(r, r), q, Mul(-2.0f, r));                                 // expm1(-2 r)
  const float s = BitsFloat((FloatBits(j) - FloatBits(kRoundMagic) + 127u) << 23);  // 2^n
  const float u = Fma(s, p, Sub(s, 1.0f));  // expm1(-2 a), in [-1, 0]
  const float d = Add(2.0f, u);
  const float dl = Add(Sub(2.0f, d), u);  // d + dl = 2 + u exactly
  const float y = RcpOneToTwo(d);
  float t = Mul(Neg(u), y);
  float e = Fma(Neg(t), d, Neg(u));
  e = Fma(Neg(t), dl, e);
  t = Fma(e, y, t);
  return CopySign(t, x);
}

RLK_HD float Log1p(float x) {
  if (!(x > -1.0f)) {
    // -1 gives -inf; below it, and for NaN, NaN.
    return x == -1.0f ? BitsFloat(0xff800000u) : BitsFloat(kNanF32);
  }
  if (x == 0.0f) return x;
  if (FloatBits(x) == 0x7f800000u) return x;
  const float u = Add(x, 1.0f);
  const uint32_t e = (FloatBits(u) - 0x3f400000u) & 0xff800000u;
  const float m = Add(BitsFloat(FloatBits(x) - e), Fma(0.25f, BitsFloat(0x40800000u - e), -1.0f));
  float q = -0x1.700404p-5f;
  q = Fma(q, m, 0x1.ac17b2p-4f);
  q = Fma(q, m, -0x1.0d99c4p-3f);
  q = Fma(q, m, 0x1.2898aep-3f);
  q = Fma(q, m, -0x1.54f1aep-3f);
  q = Fma(q, m, 0x1.99686cp-3f);
  q = Fma(q, m, -0x1.000030p-2f);
  q = Fma(q, m, 0x1.5555a6p-2f);
  q = Fma(q, m, -0.5f);
  float l = Fma(Mul(m, m), q, m);
  const float k = Mul(static_cast<float>(static_cast<int32_t>(e)), 0x1p-23f);
  l = Fma(k, kLn2Low, l);
  return Fma(k, kLn2High, l);
}

// sin and cos share the reduction; |x| <= 2^18, which callers check.
struct ReducedAngle {
  uint32_t quadrant;
  float sine, cosine;
};

RLK_HD ReducedAngle ReduceAngle(float x) {
  const float j = Fma(x, 0x1.45f306p-1f, kRoundMagic);
  const float n = Sub(j, kRoundMagic);
  float r = Fma(n, -0x1.921fb6p+0f, x);
  r = Fma(n, 0x1.777a5cp-25f, r);
  r = Fma(n, 0x1.ee59dap-50f, r);
  const float z = Mul(r, r);
  float q = 0x1.7c0d3cp-19f;
  q = Fma(q, z, -0x1.a05954p-13f);
  q = Fma(q, z, 0x1.111174p-7f);
  q = Fma(q, z, -0x1.555556p-3f);
  ReducedAngle angle;
  angle.quadrant = FloatBits(j);
  angle.sine = Fma(Mul(z, q), r, r);
  float c = 0x1.99e5cap-16f;
  c = Fma(c, z, -0x1.6c0c28p-10f);
  c = Fma(c, z, 0x1.55554ap-5f);
  c = Fma(c, z, -0.5f);
  angle.cosine = Fma(c, z, 1.0f);
  return angle;
}

RLK_HD float Sin(float x) {
  const ReducedAngle a = ReduceAngle(x);
  const float value = (a.quadrant & 1u) ? a.cosine : a.sine;
  return (a.quadrant & 2u) ? Neg(value) : value;
}

RLK_HD float Cos(float x) {
  const ReducedAngle a = ReduceAngle(x);
  const float value = (a.quadrant & 1u) ? a.sine : a.cosine;
  return ((a.quadrant + 1u) & 2u) ? Neg(value) : value;
}

}  // namespace rlk::arith
