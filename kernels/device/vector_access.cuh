// Consecutive elements of one thread, moved in words of up to 16 bytes and handled as FP32.
//
// Up-conversions are exact. Down-conversions use the hardware's round-to-nearest instructions,
// whose results (canonical NaN 0x7fff included) equal kernels/arith/convert.h for all 2^32 inputs;
// tests/gpu holds them to that.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/arith/convert.h"

namespace rlk::device {

inline constexpr int kVectorAlignment = 16;

// Storage types: the bits of an element, with the dtype in the type.
struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

// One element; the slow way round, for tails, strides and unaligned storage.
__device__ __forceinline__ float ToFloat(float x) { return x; }
__device__ __forceinline__ float ToFloat(Bf16 x) { return arith::Bf16ToFloat(x.bits); }
__device__ __forceinline__ float ToFloat(F16 x) { return __half2float(__ushort_as_half(x.bits)); }

template <typename T>
__device__ __forceinline__ T FromFloat(float x);
template <>
__device__ __forceinline__ float FromFloat<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ Bf16 FromFloat<Bf16>(float x) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
}
template <>
__device__ __forceinline__ F16 FromFloat<F16>(float x) {
  return {__half_as_ushort(__float2half_rn(x))};
}

template <typename T>
__device__ __forceinline__ void UnpackPair(uint32_t pair, float& low, float& high) {
  if constexpr (std::is_same_v<T, Bf16>) {
    low = __uint_as_float(pair << 16);
    high = __uint_as_float(pair & 0xffff0000u);
  } else {
    low = __half2float(__ushort_as_half(static_cast<uint16_t>(pair & 0xffffu)));
    high = __half2float(__ushort_as_half(static_cast<uint16_t>(pair >> 16)));
  }
}

template <typename T>
__device__ __forceinline__ uint32_t PackPair(float low, float high) {
  uint32_t pair;
  if constexpr (std::is_same_v<T, Bf16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

// kCount consecutive elements of T: 4 to 32 bytes in registers, moved in words of 4, 8 or 16.
template <typename T, int kCount>
struct Vector {
  static constexpr int kRegisters = kCount * static_cast<int>(sizeof(T)) / 4;
  static_assert(kRegisters == 1 || kRegisters == 2 || kRegisters % 4 == 0);
  uint32_t registers[kRegisters];

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) registers[i] = 0;
  }

  // With the caches' default policy: streaming hints (ld.cs, st.cs) cost up to 10 % on an H200.
  __device__ __forceinline__ void Load(const T* p) {
    if constexpr (kRegisters == 1) {
      registers[0] = __ldg(reinterpret_cast<const uint32_t*>(p));
    } else if constexpr (kRegisters == 2) {
      const uint2 word = __ldg(reinterpret_cast<const uint2*>(p));
      registers[0] = word.x;
      registers[1] = word.y;
    } else {
#pragma unroll
      for (int i = 0; i < kRegisters / 4; ++i) {
        const uint4 word = __ldg(reinterpret_cast<const uint4*>(p) + i);
        registers[4 * i] = word.x;
        registers[4 * i + 1] = word.y;
        registers[4 * i + 2] = word.z;
        registers[4 * i + 3] = word.w;
      }
    }
  }

  // From memory that is not constant: shared memory, or what this kernel writes.
  __device__ __forceinline__ void LoadShared(const T* p) {
    static_assert(kRegisters > 1);
    if constexpr (kRegisters == 2) {
      const uint2 word = *reinterpret_cast<const uint2*>(p);
      registers[0] = word.x;
      registers[1] = word.y;
    } else {
#pragma unroll
      for (int i = 0; i < kRegisters; i += 4) {
        const uint4 word = reinterpret_cast<const uint4*>(p)[i / 4];
        registers[i] = word.x;
        registers[i + 1] = word.y;
        registers[i + 2] = word.z;
        registers[i + 3] = word.w;
      }
    }
  }

  // As Load, at this place of the program: the compiler does not move it, so that a load ahead
  // stays ahead.
  __device__ __forceinline__ void LoadHere(const T* p) {
    static_assert(kRegisters % 4 == 0);
#pragma unroll
    for (int i = 0; i < kRegisters; i += 4) {
      asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(registers[i]), "=r"(registers[i + 1]), "=r"(registers[i + 2]),
                     "=r"(registers[i + 3])
                   : "l"(reinterpret_cast<const uint4*>(p) + i / 4));
    }
  }

  __device__ __forceinline__ void Store(T* p) const {
    if constexpr (kRegisters == 1) {
      *reinterpret_cast<uint32_t*>(p) = registers[0];
    } else if constexpr (kRegisters == 2) {
      *reinterpret_cast<uint2*>(p) = make_uint2(registers[0], registers[1]);
    } else {
#pragma unroll
      for (int i = 0; i < kRegisters / 4; ++i) {
        reinterpret_cast<uint4*>(p)[i] = make_uint4(registers[4 * i], registers[4 * i + 1],
                                                    registers[4 * i + 2], registers[4 * i + 3]);
      }
    }
  }

  // 16-bit types: two elements in a register, the first in the low half.
  __device__ __forceinline__ void ToFloats(float (&x)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) {
      if constexpr (sizeof(T) == 4) {
        x[i] = __uint_as_float(registers[i]);
      } else {
        UnpackPair<T>(registers[i], x[2 * i], x[2 * i + 1]);
      }
    }
  }

  __device__ __forceinline__ void FromFloats(const float (&x)[kCount]) {
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) {
      if constexpr (sizeof(T) == 4) {
        registers[i] = __float_as_uint(x[i]);
      } else {
        registers[i] = PackPair<T>(x[2 * i], x[2 * i + 1]);
      }
    }
  }
};

// True where the vector accesses above may be used.
inline bool VectorAligned(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % kVectorAlignment == 0;
}

}  // namespace rlk::device
