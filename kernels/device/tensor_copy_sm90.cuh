// Bulk copies of a tile of a matrix (kernels/cuda/tensor_map.h) into shared memory.
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

}  // namespace rlk::device
