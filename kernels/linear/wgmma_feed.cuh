// What feeds the wgmma kernels of the forward: one warp that copies, and a ring of stages. Weights
// are operand A, tiles of a tensor map; x, packed, is operand B.
#pragma once

#include <cstdint>

#include "kernels/arith/scalar.h"
#include "kernels/device/tensor_copy_sm90.cuh"
#include "kernels/device/wgmma_sm90.cuh"
#include "kernels/linear/bf16_packed.cuh"
#include "kernels/linear/stage_ring.cuh"
#include "kernels/linear/wgmma_epilogue.cuh"

namespace rlk::linear {

// The warpgroup that copies leaves its registers to those that multiply: what they have together is
// what the block was launched with.
inline constexpr int kProducerRegisters = 32;
constexpr int ConsumerRegisters(int warpgroups) {
  const int launched = 512 / (warpgroups + 1) / 8 * 8 * (warpgroups + 1);
  const int each = (launched - kProducerRegisters) / warpgroups / 8 * 8;
  return each < 240 ? each : 240;
}

// Rows of a tile, warpgroups that multiply (64 outputs each), stages of the ring.
template <int kTileRows, int kWarpgroups, int kRingStages>
struct WgmmaPlan {
  static constexpr int kRows = kTileRows, kGroups = kWarpgroups, kStages = kRingStages;
  static constexpr int kOutputs = 64 * kGroups;
  static constexpr int kConsumerWarps = 4 * kGroups, kStageWarps = kConsumerWarps;
  // The last warpgroup copies, by one thread.
  static constexpr int kThreads = 128 * (kGroups + 1);
  static constexpr int kConsumerRegisters = ConsumerRegisters(kGroups);
  static constexpr int kWeightBytes = kOutputs * kPackedInputs * 2;  // of a stage
  static constexpr int kXBytes = kRows * kPackedInputs * 2;
  static constexpr int kPatchBytes = linear::kPatchBytes;  // of a warp
  static constexpr int kSharedBytes =
      kStages * (kWeightBytes + kXBytes + 2 * static_cast<int>(sizeof(device::StageBarrier))) +
      kConsumerWarps * kPatchBytes;
  static_assert(kSharedBytes <= 227 << 10);
  static_assert(kOutputs <= 256);
};

// The work of a launch: items are (outputs, tiles of rows), rows fastest, so that blocks that run
// together read the same weights.
template <typename P>
struct Schedule {
  int items, row_blocks, first, stride;

  __device__ Schedule(int64_t outputs, const PackedShape& shape)
      : row_blocks(static_cast<int>(shape.tiles)),
        first(static_cast<int>(blockIdx.x)),
        stride(static_cast<int>(gridDim.x)) {
    items = static_cast<int>((outputs + P::kOutputs - 1) / P::kOutputs) * row_blocks;
  }
  __device__ __forceinline__ int Output(int item) const { return item / row_blocks * P::kOutputs; }
  __device__ __forceinline__ int Tile(int item) const { return item % row_blocks; }
};

// The ring in shared memory, 1024-byte aligned.
template <typename P>
struct Ring {
  std::byte* weights;
  std::byte* x;
  float* patches;  // for WriteTile, one a warp
  device::StageBarrier *full, *empty;

  __device__ explicit Ring(std::byte* shared)
      : weights(shared),
        x(shared + P::kStages * P::kWeightBytes),
        patches(reinterpret_cast<float*>(x + P::kStages * P::kXBytes)),
        full(reinterpret_cast<device::StageBarrier*>(patches +
                                                     P::kConsumerWarps * P::kPatchBytes / 4)),
        empty(full + P::kStages) {}
  __device__ __forceinline__ float* Patch() const {
    return patches + threadIdx.x / 32 * (P::kPatchBytes / 4);
  }

  // By the whole block.
  __device__ void Init() const {
    if (threadIdx.x == 0) {
      for (int i = 0; i < P::kStages; ++i) {
        full[i].Init(1);
        empty[i].Init(P::kStageWarps);
      }
      device::StageBarrier::FenceInit();
    }
    __syncthreads();
  }
};

// Where an item's operands are.
template <typename P>
struct Source {
  int row;             // of the weights that this block copies
  const std::byte* x;  // its tile, or null beyond the rows

  __device__ __forceinline__ Source(const Schedule<P>& work, int item, const std::byte* packed,
                                    const PackedShape& shape)
      : row(work.Output(item)), x(nullptr) {
    const int64_t tile = work.Tile(item);
    if (tile < shape.tiles) x = packed + (tile * shape.all_stages + shape.first) * P::kXBytes;
  }
};

template <typename P>
__device__ __forceinline__ void CopyWeights(const CUtensorMap& weights, const Source<P>& from,
                                            int column, const Ring<P>& ring, int slot) {
  ring.full[slot].ArriveExpect(P::kWeightBytes + (from.x != nullptr ? P::kXBytes : 0));
  device::TileCopy(ring.weights + slot * P::kWeightBytes, weights, from.row, column,
                   ring.full[slot]);
}

template <typename P>
__device__ __forceinline__ void CopyX(const Source<P>& from, int stage, const Ring<P>& ring,
                                      int slot) {
  if (from.x == nullptr) return;
  device::BulkCopy(ring.x + slot * P::kXBytes, from.x + stage * P::kXBytes, P::kXBytes,
                   ring.full[slot]);
}

// By one thread.
template <typename P>
__device__ __forceinline__ void Produce(const CUtensorMap& weights, const std::byte* packed,
                                        const PackedShape& shape, const Schedule<P>& work,
                                        const Ring<P>& ring) {
  const int stages = static_cast<int>(shape.stages);
  const int first_column = static_cast<int>(shape.first) * kPackedInputs;
  if (work.first >= work.items) return;
  // The weights of the first stages are on their way before the launch ahead, which makes x, has
  // ended.
  Source<P> from(work, work.first, packed, shape);
  const int early = min(P::kStages, stages);
  for (int stage = 0; stage < early; ++stage) {
    CopyWeights(weights, from, first_column + stage * kPackedInputs, ring, stage);
  }
  device::WaitForLaunchAhead();
  for (int stage = 0; stage < early; ++stage) CopyX(from, stage, ring, stage);
  Slot<P> slot;
  for (int i = 0; i < early; ++i) slot.Next();
  int stage = early;
  for (int item = work.first;;) {
    for (; stage < stages; ++stage) {
      ring.empty[slot.index].Wait(slot.parity ^ 1);
      CopyWeights(weights, from, first_column + stage * kPackedInputs, ring, slot.index);
      CopyX(from, stage, ring, slot.index);
      slot.Next();
    }
    item += work.stride;
    if (item >= work.items) return;
    from = Source<P>(work, item, packed, shape);
    stage = 0;
  }
}

// The compiler keeps uses of `part` behind the wait before this, and before the step after it.
template <int kCount>
__device__ __forceinline__ void Pin(float (&part)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(part[i])::"memory");
}

template <int kCount>
__device__ __forceinline__ void AddPart(float (&total)[kCount], float (&part)[kCount]) {
  Pin(part);
#pragma unroll
  for (int i = 0; i < kCount; ++i) total[i] = arith::Add(total[i], part[i]);
}

}  // namespace rlk::linear
