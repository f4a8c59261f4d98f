// Forward of contract h3-det-linear-bf16-mma-v1 by `wgmma`, any number of rows. The weights are
// read from the ring into registers, where a step has its sixteen inputs; a step goes into
// registers of its own, from zero, and is added to the totals. Tiles of 128 rows take their steps
// in two halves: while one is added, the tensor cores work on the other. Beside that they work for
// the other warpgroups, while one waits or adds.
#pragma once

#include <cstdint>

#include "kernels/linear/wgmma_feed.cuh"

namespace rlk::linear {

// Output of the eight that lanes 4 i .. 4 i + 3 have: so the 16-byte words that eight lanes read
// together lie in different banks.
__device__ __forceinline__ int OutputOfRow(int i) { return i / 2 + i % 2 * 4; }

// The weights of two steps, 32 inputs, of a warp's sixteen outputs.
struct StepWeights {
  uint32_t a[2][4];

  // row: of the lane's first output in a stage.
  __device__ __forceinline__ void Load(const std::byte* row, int half, int output) {
    const int word = ((half * 4 + static_cast<int>(threadIdx.x) % 4) ^ output) * 16;
    const uint4 low = *reinterpret_cast<const uint4*>(row + word);
    const uint4 high = *reinterpret_cast<const uint4*>(row + 8 * 128 + word);
    a[0][0] = low.x, a[0][1] = high.x, a[0][2] = low.y, a[0][3] = high.y;
    a[1][0] = low.z, a[1][1] = high.z, a[1][2] = low.w, a[1][3] = high.w;
  }
};

// The steps of a stage into the totals of kParts parts of the rows. The last step of the stage is
// waited for: the compiler keeps steps on their way within one pass of a loop only.
template <typename P, int kParts, int kSums>
__device__ __forceinline__ void AddStage(const std::byte* row, uint64_t b, int output,
                                         float (&total)[kParts][kSums]) {
  constexpr int kStepWords = P::kXBytes / kStageSteps / 16, kPartWords = kStepWords / kParts;
  StepWeights weights[2];
  float part[kParts][kSums];
  const auto issue = [&](int step, int i) {
    device::WgmmaFence();
    device::WgmmaRegisters<false>(part[i], weights[step / 2].a[step % 2],
                                  b + step * kStepWords + i * kPartWords);
    device::WgmmaCommit();
  };
  weights[0].Load(row, 0, output);
#pragma unroll
  for (int i = 0; i < kParts; ++i) issue(0, i);
  weights[1].Load(row, 1, output);
#pragma unroll
  for (int step = 0; step < kStageSteps; ++step) {
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      if (step + 1 == kStageSteps && i + 1 == kParts) {
        device::WgmmaWait<0>();
      } else {
        device::WgmmaWait<kParts - 1>();
      }
      AddPart(total[i], part[i]);
      if (step + 1 < kStageSteps) issue(step + 1, i);
    }
  }
}

// All stages of an item.
template <typename P, int kParts, int kSums>
__device__ __forceinline__ void AddItem(const Ring<P>& ring, Slot<P>& slot, int stages, int output,
                                        float (&total)[kParts][kSums]) {
  const int first = static_cast<int>(threadIdx.x) / 32 * 16 + output;
#pragma unroll 1
  for (int stage = 0; stage < stages; ++stage) {
    ring.full[slot.index].Wait(slot.parity);
    AddStage<P>(ring.weights + slot.index * P::kWeightBytes + first * 128,
                device::MakeDescriptor(ring.x + slot.index * P::kXBytes, kProductBytes, kRowBytes),
                output, total);
    Release(ring.empty[slot.index]);
    slot.Next();
  }
}

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
    const int output = OutputOfRow(lane / 4), stages = static_cast<int>(shape.stages);
    Slot<P> slot;
    for (int item = work.first; item < work.items; item += work.stride) {
      const int channel = work.Output(item) + warp * 16;
      const int64_t row = int64_t{work.Tile(item)} * P::kRows;
      if constexpr (P::kRows < 128) {
        const TileWriter writer(problem, channel, output);
        float total[1][P::kRows / 2] = {};
        AddItem(ring, slot, stages, output, total);
        writer.Write(row, total[0], ring.Patch());
      } else {
        // The sums leave no registers for a writer.
        float total[2][P::kRows / 4] = {};
        AddItem(ring, slot, stages, output, total);
        const TileWriter writer(problem, channel, output);
#pragma unroll
        for (int i = 0; i < 2; ++i) writer.Write(row + i * P::kRows / 2, total[i], ring.Patch());
      }
    }
  }
#else
  __trap();
#endif
}

}  // namespace rlk::linear
