// Bulk copies of a tile of a matrix (kernels/cuda/tensor_map.h) into shared memory, and back.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/device/bulk_copy_sm90.cuh"

namespace rlk::device {

// The tile whose first element is (row, column). `barrier` counts its bytes.
__device__ __forceinline__ void TileCopy(void* to, const CUtensorMap& map, int row, int column,
                                         const StageBarrier& barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
      "%4}], [%2];" ::"r"(SharedAddress(to)),
      "l"(&map), "r"(barrier.Address()), "r"(column), "r"(row)
      : "memory");
#else
  __trap();
#endif
}

// The tile in shared memory to where its first element is (row, column), as BulkStore; what is
// beyond the matrix is left out.
__device__ __forceinline__ void TileStore(const CUtensorMap& map, int row, int column,
                                          const void* from) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
      "r"(SharedAddress(from)), "r"(column), "r"(row)
      : "memory");
#else
  __trap();
#endif
}

}  // namespace rlk::device
