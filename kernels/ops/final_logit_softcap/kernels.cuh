// Device code of `final_logit_softcap/portable-v1`.
//
// Element functions, and the streaming kernels for contiguous aligned tensors. The streaming
// kernels reach the contract's bits with fewer instructions than its plain form:
//
// * Division by the cap, the same for all elements: q = x rc, q += (x - q c) rc with rc = RN(1/c),
//   which is the correctly rounded quotient (Brisebarre, Muller, Raina, "Accelerating correctly
//   rounded floating-point division when the divisor is known in advance", IEEE Transactions on
//   Computers 53(8), 2004) as long as nothing underflows: used for caps in [2^-20, 2^20] and
//   magnitudes that are 0 or at least 2^-100. Smaller magnitudes divide by __fdiv_rn, in a branch
//   that one test for all elements of a thread decides.
// * tanh's clamp at 10 is made on |x| before the division, at RN(10 c). The quotient of a clamped
//   magnitude is 10 within two units in the last place, where the unclamped polynomial gives
//   exactly 1 as the contract's clamp does. Infinity is clamped as well; NaN passes and comes out
//   canonical, because every FP32 instruction canonicalises it.
// * The sign of x is set at the end (forward) or not needed (backward: tanh enters squared).
//
// tests/gpu holds both forms to the same bits for all inputs.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/arith/functions.h"
#include "kernels/device/strided.cuh"
#include "kernels/device/vector_access.cuh"

namespace rlk::softcap {

// The cap and what is derived from it once per call.
struct Cap {
  float cap;
  float half;                   // cap / 2
  float minus_two_reciprocals;  // -2 RN(1 / cap)
  float bound;                  // RN(10 cap)
};

inline constexpr float kFastCapMin = 0x1p-20f;
inline constexpr float kFastCapMax = 0x1p20f;

__host__ __device__ inline Cap MakeCap(float cap) {
  return {cap, 0.5f * cap, arith::Mul(-2.0f, arith::Div(1.0f, cap)), arith::Mul(10.0f, cap)};
}
inline bool HasFastDivision(float cap) { return cap >= kFastCapMin && cap <= kFastCapMax; }

// The contract as it is written.
__device__ __forceinline__ float ForwardElement(float x, float cap) {
  return arith::Mul(cap, arith::Tanh(arith::Div(x, cap)));
}
__device__ __forceinline__ float BackwardElement(float x, float g, float cap) {
  const float t = arith::Tanh(arith::Div(x, cap));
  return arith::Mul(g, arith::Fma(arith::Neg(t), t, 1.0f));
}

// arith::Tanh for w = -2 a, 0 <= a <= 10 (1 + 2^-22), and NaN, without clamp and sign. Everything
// of the reduced argument is scaled by -2, and the polynomial's coefficients by powers of -1/2:
// exact scalings, so each rounding is that of the contract, and its product with -2 is not needed.
__device__ __forceinline__ float TanhMagnitude(float w) {
  using namespace arith;
  const float j = Fma(w, kLog2E, kRoundMagic);
  const float n = Sub(j, kRoundMagic);
  float r = Fma(n, -kLn2High, w);
  r = Fma(n, -kLn2Low, r);  // -2 times the contract's r
  float q = kTanhC5 * -0x1p-7f;
  q = Fma(q, r, kTanhC4 * 0x1p-6f);
  q = Fma(q, r, kTanhC3 * -0x1p-5f);
  q = Fma(q, r, kTanhC2 * 0x1p-4f);
  q = Fma(q, r, kTanhC1 * -0x1p-3f);
  q = Fma(q, r, kTanhC0 * 0x1p-2f);
  const float p = Fma(Mul(r, r), q, r);
  const float s = BitsFloat((FloatBits(j) << 23) + (127u << 23));  // the bits of M shift out
  const float u = Fma(s, p, Sub(s, 1.0f));
  const float d = Add(2.0f, u);
  const float dl = Add(Sub(2.0f, d), u);
  const float y = RcpOneToTwo(d);
  float t = Mul(-u, y);
  float e = Fma(-t, d, -u);
  e = Fma(-t, dl, e);
  return Fma(e, y, t);
}

// min(|x|, bound); NaN stays NaN.
__device__ __forceinline__ float ClampMagnitude(float x, float bound) {
  float a;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(a) : "f"(fabsf(x)), "f"(bound));
  return a;
}

// `magnitude` with the sign of x. The magnitude's own sign bit is clear, or it is NaN, which the
// next instruction makes canonical.
__device__ __forceinline__ float WithSign(float magnitude, float x) {
  return arith::BitsFloat(arith::FloatBits(magnitude) | (arith::FloatBits(x) & 0x80000000u));
}

// Tells whether any magnitude of some vectors lies in (0, 2^-100), where the fast quotient may be
// wrong. Minus 1 makes the largest of 0, so that one unsigned minimum holds the answer.
template <typename X, int kCount, int kVectors>
__device__ __forceinline__ bool HasTiny(const device::Vector<X, kCount> (&v)[kVectors]) {
  if constexpr (std::is_same_v<X, device::F16>) {
    return false;  // the smallest magnitude is 2^-24
  } else {
    constexpr bool kPacked = std::is_same_v<X, device::Bf16>;
    constexpr uint32_t kMagnitude = kPacked ? 0x7fff7fffu : 0x7fffffffu;
    constexpr uint32_t kLimit = ((127u - 100u) << (kPacked ? 7 : 23)) - 1u;
    uint32_t least = 0xffffffffu;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
#pragma unroll
      for (int i = 0; i < v[k].kRegisters; ++i) {
        const uint32_t magnitude = v[k].registers[i] & kMagnitude;
        least = kPacked ? __viaddmin_u16x2(magnitude, 0xffffffffu, least)
                        : __viaddmin_u32(magnitude, 0xffffffffu, least);
      }
    }
    if constexpr (kPacked) return (least & 0xffffu) < kLimit || (least >> 16) < kLimit;
    return least < kLimit;
  }
}

// -2 a / c from the correctly rounded quotient, for the magnitudes that the fast form is right for.
__device__ __forceinline__ float MinusTwoQuotients(float a, const Cap& cap) {
  const float q = arith::Mul(a, cap.minus_two_reciprocals);
  return arith::Fma(arith::Fma(q, cap.half, a), cap.minus_two_reciprocals, q);
}

// |tanh(x / c)|, by the fast forms unless `tiny` asks for the plain division.
template <int kCount>
__device__ __forceinline__ void TanhMagnitudes(const float (&x)[kCount], const Cap& cap, bool tiny,
                                               float (&t)[kCount]) {
  float q[kCount];  // -2 times the quotient
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float a = ClampMagnitude(x[i], cap.bound);
    q[i] = MinusTwoQuotients(a, cap);
  }
  if (tiny) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      q[i] = arith::Mul(-2.0f, arith::Div(ClampMagnitude(x[i], cap.bound), cap.cap));
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) t[i] = TanhMagnitude(q[i]);
}

// How a streaming kernel is cut: `group_count` vectors of `group` elements a thread, a block apart.
template <int group, int group_count, int threads>
struct Tuning {
  static constexpr int kGroup = group;
  static constexpr int kGroups = group_count;
  static constexpr int kThreads = threads;
  static constexpr int kStep = kGroup * kThreads;
  static constexpr int64_t kBlockElements = int64_t{kStep} * kGroups;
};

// x, y: [n], contiguous, 16-byte aligned. Grid: ceil(n / kBlockElements). The last block, when it
// is not full, goes element by element.
template <typename X, typename Y, bool kFastDivision, typename T>
__global__ void __launch_bounds__(T::kThreads)
    SoftcapForwardKernel(const X* __restrict__ x, Y* __restrict__ y, int64_t n, Cap cap) {
  constexpr int kGroup = T::kGroup;
  const int64_t block = blockIdx.x * T::kBlockElements;
  if (block + T::kBlockElements > n) {
    for (int64_t i = block + threadIdx.x; i < n; i += T::kThreads) {
      y[i] = device::FromFloat<Y>(ForwardElement(device::ToFloat(x[i]), cap.cap));
    }
    return;
  }
  x += block + threadIdx.x * kGroup;
  y += block + threadIdx.x * kGroup;
  device::Vector<X, kGroup> in[T::kGroups];
#pragma unroll
  for (int k = 0; k < T::kGroups; ++k) in[k].Load(x + k * T::kStep);
  const bool tiny = kFastDivision && HasTiny(in);
#pragma unroll
  for (int k = 0; k < T::kGroups; ++k) {
    float v[kGroup], out[kGroup];
    in[k].ToFloats(v);
    if constexpr (kFastDivision) TanhMagnitudes(v, cap, tiny, out);
#pragma unroll
    for (int e = 0; e < kGroup; ++e) {
      out[e] = kFastDivision ? arith::Mul(cap.cap, WithSign(out[e], v[e]))
                             : ForwardElement(v[e], cap.cap);
    }
    device::Vector<Y, kGroup> result;
    result.FromFloats(out);
    result.Store(y + k * T::kStep);
  }
}

// x, grad_y, grad_x: [n], contiguous, 16-byte aligned. Otherwise as above.
template <typename X, typename G, bool kFastDivision, typename T>
__global__ void __launch_bounds__(T::kThreads)
    SoftcapBackwardKernel(const X* __restrict__ x, const G* __restrict__ grad_y,
                          X* __restrict__ grad_x, int64_t n, Cap cap) {
  constexpr int kGroup = T::kGroup;
  const int64_t block = blockIdx.x * T::kBlockElements;
  if (block + T::kBlockElements > n) {
    for (int64_t i = block + threadIdx.x; i < n; i += T::kThreads) {
      grad_x[i] = device::FromFloat<X>(
          BackwardElement(device::ToFloat(x[i]), device::ToFloat(grad_y[i]), cap.cap));
    }
    return;
  }
  x += block + threadIdx.x * kGroup;
  grad_y += block + threadIdx.x * kGroup;
  grad_x += block + threadIdx.x * kGroup;
  device::Vector<X, kGroup> in[T::kGroups];
  device::Vector<G, kGroup> grad[T::kGroups];
#pragma unroll
  for (int k = 0; k < T::kGroups; ++k) {
    in[k].Load(x + k * T::kStep);
    grad[k].Load(grad_y + k * T::kStep);
  }
  const bool tiny = kFastDivision && HasTiny(in);
#pragma unroll
  for (int k = 0; k < T::kGroups; ++k) {
    float v[kGroup], g[kGroup], out[kGroup];
    in[k].ToFloats(v);
    grad[k].ToFloats(g);
    if constexpr (kFastDivision) TanhMagnitudes(v, cap, tiny, out);
#pragma unroll
    for (int e = 0; e < kGroup; ++e) {
      out[e] = kFastDivision ? arith::Mul(g[e], arith::Fma(-out[e], out[e], 1.0f))
                             : BackwardElement(v[e], g[e], cap.cap);
    }
    device::Vector<X, kGroup> result;
    result.FromFloats(out);
    result.Store(grad_x + k * T::kStep);
  }
}

inline constexpr int kElementThreads = 256;

// Any strides, any alignment: one element a thread. y: [n] in C order of the logical index.
template <typename X, typename Y>
__global__ void __launch_bounds__(kElementThreads)
    SoftcapForwardElementsKernel(const X* __restrict__ x, device::StridedIndex x_index,
                                 Y* __restrict__ y, int64_t n, float cap) {
  const int64_t i = int64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  if (i >= n) return;
  y[i] = device::FromFloat<Y>(ForwardElement(device::ToFloat(x[x_index.Offset(i)]), cap));
}

template <typename X, typename G>
__global__ void __launch_bounds__(kElementThreads)
    SoftcapBackwardElementsKernel(const X* __restrict__ x, device::StridedIndex x_index,
                                  const G* __restrict__ grad_y, device::StridedIndex grad_y_index,
                                  X* __restrict__ grad_x, int64_t n, float cap) {
  const int64_t i = int64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  if (i >= n) return;
  const float value = device::ToFloat(x[x_index.Offset(i)]);
  const float g = device::ToFloat(grad_y[grad_y_index.Offset(i)]);
  grad_x[i] = device::FromFloat<X>(BackwardElement(value, g, cap));
}

}  // namespace rlk::softcap
