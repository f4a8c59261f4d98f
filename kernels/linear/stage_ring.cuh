// What kernels of a ring of stages share, in which one warpgroup brings operands to shared memory
// and the others multiply them.
#pragma once

#include <cstdint>

#include "kernels/device/bulk_copy_sm90.cuh"

namespace rlk::linear {

// A place of the ring, in turns.
template <typename P>
struct Slot {
  int index = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void Next() {
    if (++index == P::kStages) {
      index = 0;
      parity ^= 1;
    }
  }
  __device__ __forceinline__ void Skip(int stages) {
    index += stages;
    while (index >= P::kStages) {
      index -= P::kStages;
      parity ^= 1;
    }
  }
};

// Of all warps of a warpgroup.
template <int kRegisters>
__device__ __forceinline__ void TakeRegisters() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}
template <int kRegisters>
__device__ __forceinline__ void GiveRegisters() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}

// A warp has done with a stage.
__device__ __forceinline__ void Release(device::StageBarrier& empty) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) empty.Arrive();
}

}  // namespace rlk::linear
