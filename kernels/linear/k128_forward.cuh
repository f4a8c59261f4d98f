// Forward of contract bf16-k128-v1 by `wgmma`, any number of rows: eight steps are chained from
// zero over a chunk of 128 inputs, and the chunk is added to the total. Both operands are read from
// shared memory.
#pragma once

#include <cstdint>

#include "kernels/linear/wgmma_feed.cuh"

namespace rlk::linear {

inline constexpr int kChunkStages = 128 / kPackedInputs;

template <typename P>
__global__ void __launch_bounds__(P::kThreads, 1)
    K128ForwardKernel(const __grid_constant__ CUtensorMap weights,
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
    Slot<P> slot;
    for (int item = work.first; item < work.items; item += work.stride) {
      const TileWriter writer(problem, work.Output(item) + warp * 16, lane / 4);
      float total[P::kRows / 2] = {};
      for (int chunk = 0; chunk < shape.stages / kChunkStages; ++chunk) {
        float part[P::kRows / 2];
        Slot<P> at = slot;
#pragma unroll
        for (int i = 0; i < kChunkStages; ++i) {
          ring.full[at.index].Wait(at.parity);
          const uint64_t a = device::MakeSwizzledDescriptor(
              ring.weights + at.index * P::kWeightBytes + warp / 4 * 64 * 128);
          const uint64_t b =
              device::MakeDescriptor(ring.x + at.index * P::kXBytes, kProductBytes, kRowBytes);
          if (i == 0) Pin(part);
          device::WgmmaFence();
#pragma unroll
          for (int step = 0; step < kStageSteps; ++step) {
            const uint64_t b_step = b + step * (P::kXBytes / kStageSteps / 16);
            if (i == 0 && step == 0) {
              device::WgmmaShared<false>(part, a + step * 2, b_step);
            } else {
              device::WgmmaShared<true>(part, a + step * 2, b_step);
            }
          }
          device::WgmmaCommit();
          at.Next();
        }
        device::WgmmaWait<0>();
#pragma unroll
        for (int i = 0; i < kChunkStages; ++i) {
          Release(ring.empty[slot.index]);
          slot.Next();
        }
        AddPart(total, part);
      }
      writer.Write(int64_t{work.Tile(item)} * P::kRows, total, ring.Patch());
    }
  }
#else
  __trap();
#endif
}

}  // namespace rlk::linear
