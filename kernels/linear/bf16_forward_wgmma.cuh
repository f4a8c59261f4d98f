// Forward of contract h3-det-linear-bf16-mma-v1 by `wgmma`, any number of rows. The weights are
// read from the ring into registers, where a step has its sixteen inputs; a step goes into
// registers of its own, from zero, and is added to the totals. While a warpgroup waits or adds,
// the tensor cores work for the others.
#pragma once

#include <cstdint>

#include "kernels/linear/wgmma_feed.cuh"

namespace rlk::linear {

// Output of the eight that lanes 4 i .. 4 i + 3 have: so the 16-byte words that eight lanes read
// together lie in different banks.
__device__ __forceinline__ int OutputOfRow(int i) { return i / 2 + i % 2 * 4; }

template <typename P>
__global__ void __launch_bounds__(P::kThreads, 1)
    Bf16ForwardWgmmaKernel(const __grid_constant__ CUtensorMap weights,
                           const __grid_constant__ Bf16Linear problem, const std::byte* packed,
                           PackedShape shape) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) std::byte shared[];
  const Ring<P> ring(shared);
  ring.Init();
  const Schedule<P> work(problem.shape.outputs, shape);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (warp >= P::kConsumerWarps) {
    GiveRegisters<kProducerRegisters>();
    if (threadIdx.x == 32 * P::kConsumerWarps) Produce(weights, packed, shape, work, ring);
  } else {
    TakeRegisters<P::kConsumerRegisters>();
    const int output = OutputOfRow(lane / 4);
    Slot<P> slot;
    for (int item = work.first; item < work.items; item += work.stride) {
      const TileWriter writer(problem, work.Output(item) + warp * 16, output);
      float total[P::kRows / 2] = {};
      for (int stage = 0; stage < shape.stages; ++stage) {
        ring.full[slot.index].Wait(slot.parity);
        const std::byte* const row =
            ring.weights + slot.index * P::kWeightBytes + (warp * 16 + output) * 128;
        const uint64_t b =
            device::MakeDescriptor(ring.x + slot.index * P::kXBytes, kProductBytes, kRowBytes);
#pragma unroll
        for (int half = 0; half < 2; ++half) {  // 32 inputs: two steps
          const int word = ((half * 4 + lane % 4) ^ output) * 16;
          const uint4 low = *reinterpret_cast<const uint4*>(row + word);
          const uint4 high = *reinterpret_cast<const uint4*>(row + 8 * 128 + word);
          const uint32_t a[2][4] = {{low.x, high.x, low.y, high.y}, {low.z, high.z, low.w, high.w}};
#pragma unroll
          for (int step = 0; step < 2; ++step) {
            float part[P::kRows / 2];
            device::WgmmaFence();
            device::WgmmaRegisters<false>(part, a[step],
                                          b + (half * 2 + step) * (P::kXBytes / kStageSteps / 16));
            device::WgmmaCommit();
            device::WgmmaWait<0>();
            AddPart(total, part);
          }
        }
        Release(ring.empty[slot.index]);
        slot.Next();
      }
      writer.Write(int64_t{work.Tile(item)} * P::kRows, total, ring.Patch());
    }
  }
#else
  __trap();
#endif
}

}  // namespace rlk::linear
