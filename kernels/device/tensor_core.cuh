// One tensor-core step of sixteen BF16 products and an FP32 accumulator, as `mma.sync` gives it.
//
// On compute capability 9.0 its arithmetic is the law of kernels/arith/tensor_step.h, for this
// instruction and for `wgmma` (kernels/device/wgmma_sm90.cuh) alike; other devices have other laws.
#pragma once

#include <cstdint>

#include "kernels/device/async_copy.cuh"

namespace rlk::device {

// d += a b^T for a 16 x 8 tile. Lane 4 g + q holds
//   a: rows g and g + 8 at products 2 q, 2 q + 1 (a[0], a[1]) and 8 + 2 q, 9 + 2 q (a[2], a[3]),
//   b: column g at the same products (b[0], b[1]),
//   d: row g at columns 2 q, 2 q + 1 (d[0], d[1]) and row g + 8 (d[2], d[3]).
__device__ __forceinline__ void MmaStep(float (&d)[4], const uint32_t (&a)[4],
                                        const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The same from zero.
__device__ __forceinline__ void MmaStepFromZero(float (&d)[4], const uint32_t (&a)[4],
                                                const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.0f));
}

// Four tiles of 8 x 8 BF16 from shared memory, transposed: lane l says where row l % 8 of tile l /
// 8 is, 16 bytes, and lane 4 g + q gets column g of the rows 2 q and 2 q + 1 of each. Operand A of
// MmaStep, of a matrix whose rows of memory run along the rows of the result.
__device__ __forceinline__ void LoadTransposed(uint32_t (&a)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(SharedAddress(row))
               : "memory");
}

// Four tiles of 8 x 8 BF16 to shared memory: lane l says where row l % 8 of tile l / 8 goes, 16
// bytes, and lane 4 g + q gives the columns 2 q and 2 q + 1 of row g of each.
__device__ __forceinline__ void StoreTiles(void* row, const uint32_t (&d)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(SharedAddress(row)),
      "r"(d[0]), "r"(d[1]), "r"(d[2]), "r"(d[3])
      : "memory");
#else
  __trap();
#endif
}

}  // namespace rlk::device
