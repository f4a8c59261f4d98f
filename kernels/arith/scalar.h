// Scalar FP32 arithmetic with the same bits on host and device (contract function set `f32-v1`).
//
// Every operation rounds once, to nearest even, with subnormals kept. An FMA happens only where
// Fma is written: contraction is off for host and device. All functions have internal linkage, so
// that files compiled for different instruction sets cannot share a copy.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__FAST_MATH__)
#error "rlk: -ffast-math changes bits; remove it from the compiler flags"
#endif
#if defined(__USE_FAST_MATH__)
#error "rlk: --use_fast_math changes bits; remove it from the nvcc flags"
#endif

#if defined(__CUDACC__)
#define RLK_HD static __host__ __device__ __forceinline__
#else
#define RLK_HD static inline __attribute__((always_inline, unused))
#endif

namespace rlk::arith {

RLK_HD uint32_t FloatBits(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x);
#else
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
#endif
}

RLK_HD float BitsFloat(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
#endif
}

#if defined(__CUDA_ARCH__)
RLK_HD float Add(float a, float b) { return __fadd_rn(a, b); }
RLK_HD float Sub(float a, float b) { return __fsub_rn(a, b); }
RLK_HD float Mul(float a, float b) { return __fmul_rn(a, b); }
RLK_HD float Div(float a, float b) { return __fdiv_rn(a, b); }
RLK_HD float Fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
// Correctly rounded 1 / sqrt(x), not 1 / sqrtf(x).
RLK_HD float Rsqrt(float x) { return __frsqrt_rn(x); }
#else
RLK_HD float Add(float a, float b) { return a + b; }
RLK_HD float Sub(float a, float b) { return a - b; }
RLK_HD float Mul(float a, float b) { return a * b; }
RLK_HD float Div(float a, float b) { return a / b; }
RLK_HD float Fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
// Correctly rounded for every positive float (all 2^24 significand and parity cases).
RLK_HD float Rsqrt(float x) { return static_cast<float>(1.0 / sqrt(static_cast<double>(x))); }
#endif

#if defined(__CUDA_ARCH__)
// Operand modifiers of the instruction that follows.
RLK_HD float Neg(float x) { return -x; }
RLK_HD float Abs(float x) { return fabsf(x); }
#else
RLK_HD float Neg(float x) { return BitsFloat(FloatBits(x) ^ 0x80000000u); }
RLK_HD float Abs(float x) { return BitsFloat(FloatBits(x) & 0x7fffffffu); }
#endif
RLK_HD float CopySign(float magnitude, float sign) {
  return BitsFloat((FloatBits(magnitude) & 0x7fffffffu) | (FloatBits(sign) & 0x80000000u));
}

// 1 / d for 1 <= d <= 2 (and NaN): correctly rounded. On the GPU three instructions, proven equal
// for all 2^23 + 1 inputs.
RLK_HD float RcpOneToTwo(float d) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(d));
  return __fmaf_rn(y, __fmaf_rn(-d, y, 1.0f), y);
#else
  return 1.0f / d;
#endif
}

// The one canonical NaN of outputs.
inline constexpr uint32_t kNanF32 = 0x7fffffffu;
inline constexpr uint16_t kNan16 = 0x7fffu;

// An arithmetic result as it is stored.
RLK_HD float Canonical(float x) { return x == x ? x : BitsFloat(kNanF32); }

}  // namespace rlk::arith
