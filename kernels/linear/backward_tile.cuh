// The tiled product of the backward: C[m, k] = sum over r of A[r, m] B[r, k] by FMA chains in
// FP32, r ascending. One warpgroup brings the terms, as FP32, to a ring of stages in shared memory
// (backward_feed.cuh); eight warps add them. A thread has kThreadRows x 8 outputs, a warp four by
// eight threads, a block four by two warps.
//
// What bounds it is the issue of FMAs, one a cycle and scheduler, for which each of the two banks
// of the register file gives one operand a cycle. So
// - the products of a term are taken in a winding order, where an FMA shares a factor with the one
//   before it, which need not be read again;
// - columns 2 i and 2 i + 1 change places in a stage: factors and sums are in registers in fours,
//   and so the factor of column j is in the other bank than its sum.
// Lanes lie in the warp so that neighbours share the rows or the columns they read: a load of 16
// bytes a lane then takes two cycles of shared memory, not four.
#pragma once

#include <cstdint>

#include "kernels/arith/scalar.h"
#include "kernels/linear/stage_ring.cuh"

namespace rlk::linear {

// Terms of a part of a stage, and of a stage.
inline constexpr int kTileDepth = 16;
inline constexpr int kStageParts = 2, kStageTerms = kStageParts * kTileDepth;
inline constexpr int kTileColumns = 128;
inline constexpr int kAdders = 256, kBringers = 128;  // threads
inline constexpr int kTileThreads = kAdders + kBringers;
// The warpgroup that brings leaves its registers to those that add, where that can be.
inline constexpr int kAdderRegisters = 208, kBringerRegisters = 88;

template <int kRowsOfThread>
struct TilePlan {
  static constexpr int kThreadRows = kRowsOfThread, kThreadColumns = 8;
  static constexpr int kRows = 16 * kThreadRows;
  static constexpr int kSums = kThreadRows * kThreadColumns;  // of a thread
  static constexpr int kStages = 4;
};

template <typename P>
struct TilePart {
  float a[kTileDepth][P::kRows];
  float b[kTileDepth][kTileColumns];  // in pairs the other way round
};
template <typename P>
struct TileStage {
  TilePart<P> parts[kStageParts];
};

// In shared memory.
template <typename P>
struct TileRing {
  TileStage<P> stages[P::kStages];
  device::StageBarrier full[P::kStages], empty[P::kStages];

  // By the whole block.
  __device__ __forceinline__ void Init() {
    if (threadIdx.x == 0) {
      for (int i = 0; i < P::kStages; ++i) {
        full[i].Init(kBringers);
        empty[i].Init(kAdders);
      }
      device::StageBarrier::FenceInit();
    }
    __syncthreads();
  }
};

template <typename P>
using ThreadSums = float[P::kThreadRows][P::kThreadColumns];

// Rows and columns of a thread's outputs within the block's.
template <typename P>
struct Place {
  int row0, column0;  // of the first

  __device__ __forceinline__ Place() {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    row0 = warp / 2 * (4 * P::kThreadRows) + (lane / 16 * 2 + lane % 2) * 4;
    column0 = warp % 2 * (kTileColumns / 2) + lane / 2 % 8 * 4;
  }
  __device__ __forceinline__ int Row(int i) const { return row0 + i / 4 * 16 + i % 4; }
  __device__ __forceinline__ int Column(int j) const { return column0 + j / 4 * 32 + j % 4; }
};

// The factors of a thread in one term.
template <typename P>
struct Factors {
  float a[P::kThreadRows], b[P::kThreadColumns];

  __device__ __forceinline__ void Load(const TilePart<P>& part, const Place<P>& place, int r) {
#pragma unroll
    for (int i = 0; i < P::kThreadRows; i += 4) {
      const float4 v = *reinterpret_cast<const float4*>(&part.a[r][place.row0 + 4 * i]);
      a[i] = v.x, a[i + 1] = v.y, a[i + 2] = v.z, a[i + 3] = v.w;
    }
#pragma unroll
    for (int j = 0; j < P::kThreadColumns; j += 4) {
      const float4 v = *reinterpret_cast<const float4*>(&part.b[r][place.column0 + 8 * j]);
      b[j + 1] = v.x, b[j] = v.y, b[j + 3] = v.z, b[j + 2] = v.w;
    }
  }
  __device__ __forceinline__ void Add(ThreadSums<P>& sum) const {
#pragma unroll
    for (int i = 0; i < P::kThreadRows; ++i) {
#pragma unroll
      for (int step = 0; step < P::kThreadColumns; ++step) {
        const int j = i % 2 == 0 ? step : P::kThreadColumns - 1 - step;
        sum[i][j] = arith::Fma(a[i], b[j], sum[i][j]);
      }
    }
  }
};

template <typename P>
__device__ __forceinline__ void AddPart(const TilePart<P>& part, const Place<P>& place,
                                        ThreadSums<P>& sum) {
  Factors<P> factors[2];
  factors[0].Load(part, place, 0);
#pragma unroll
  for (int r = 0; r < kTileDepth; ++r) {
    if (r + 1 < kTileDepth) factors[(r + 1) % 2].Load(part, place, r + 1);
    factors[r % 2].Add(sum);
  }
}

// The next `count` terms into `sum`, by the threads that add; the others bring the same.
template <typename P>
__device__ __forceinline__ void AddAll(TileRing<P>& ring, Slot<P>& slot, int count,
                                       const Place<P>& place, ThreadSums<P>& sum) {
#pragma unroll 1
  for (int left = count; left > 0; left -= kStageTerms) {
    ring.full[slot.index].WaitInBlock(slot.parity);
    const TileStage<P>& stage = ring.stages[slot.index];
    if (left >= kStageTerms) {
#pragma unroll 1
      for (int i = 0; i < kStageParts; ++i) AddPart(stage.parts[i], place, sum);
    } else {
      // Terms that are not there add nothing, not even +0 to -0.
#pragma unroll 1
      for (int r = 0; r < left; ++r) {
        Factors<P> factors;
        factors.Load(stage.parts[r / kTileDepth], place, r % kTileDepth);
        factors.Add(sum);
      }
    }
    ring.empty[slot.index].Arrive();
    slot.Next();
  }
}

// The same by the threads that bring.
template <typename P, typename LoaderA, typename LoaderB>
__device__ __forceinline__ void BringAll(TileRing<P>& ring, Slot<P>& slot, int count, LoaderA& a,
                                         LoaderB& b) {
#pragma unroll 1
  for (int left = count; left > 0; left -= kStageTerms) {
#pragma unroll
    for (int i = 0; i < kStageParts; ++i) {
      a.Load(left - i * kTileDepth);
      b.Load(left - i * kTileDepth);
      if (i == 0) ring.empty[slot.index].WaitInBlock(slot.parity ^ 1);
      TilePart<P>& part = ring.stages[slot.index].parts[i];
      a.Store(part.a);
      b.template Store<true>(part.b);
    }
    ring.full[slot.index].Arrive();
    slot.Next();
  }
}

}  // namespace rlk::linear
