// The tiled product of the backward: C[m, k] = sum over r of A[r, m] B[r, k] by FMA chains in
// FP32, r ascending. One warpgroup brings the terms, as FP32, to a ring of stages in shared memory
// (backward_feed.cuh); eight warps add them. A thread has kThreadRows x 8 outputs, a warp four by
// eight threads, a block four by two warps.
//
// What bounds it is the issue of FMAs, one a cycle and scheduler, for which each of the two banks
// of the register file gives one operand a cycle. So
// - the products of a term are taken in a winding order, where an FMA shares a factor with the one
//   before it, which need not be read again;
// - columns, and rows, 2 i and 2 i + 1 change places in a stage: factors and sums are in registers
//   in fours, and so the factor of column j is in the other bank than its sum.
// Lanes lie in the warp so that neighbours share the rows or the columns they read: a load of 16
// bytes a lane then takes two cycles of shared memory, not four.
#pragma once

#include <cstdint>

#include "kernels/arith/scalar.h"
#include "kernels/linear/stage_ring.cuh"

namespace rlk::linear {

inline constexpr int kTileRows = 128, kTileColumns = 128;
inline constexpr int kThreadRows = 8, kThreadColumns = 8;
inline constexpr int kSums = kThreadRows * kThreadColumns;  // of a thread
// Threads. The schedulers prefer the first warps of a block, which bring.
inline constexpr int kBringers = 128, kAdders = 256;
inline constexpr int kTileThreads = kBringers + kAdders;
// The warpgroup that brings leaves its registers to those that add, where that can be.
inline constexpr int kAdderRegisters = 208, kBringerRegisters = 88;

// A tile has kTileRows rows of one sum, or as many of several sums beside each other, kRows of
// each, with columns of their own: chunks of grad_x for few rows.
template <int kRowsOfSum, int kTermsOfPart, int kPartsOfStage, int kStagesOfRing>
struct TilePlan {
  static constexpr int kRows = kRowsOfSum, kBeside = kTileRows / kRows;
  static constexpr int kDepth = kTermsOfPart, kParts = kPartsOfStage;
  static constexpr int kStageTerms = kDepth * kParts;
  static constexpr int kStages = kStagesOfRing;
};
using WholePlan = TilePlan<kTileRows, 16, 2, 4>;

// Both in pairs the other way round.
template <typename P>
struct TilePart {
  float a[P::kDepth][kTileRows];
  float b[P::kDepth][P::kBeside][kTileColumns];
};
template <typename P>
struct TileStage {
  TilePart<P> parts[P::kParts];
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

using ThreadSums = float[kThreadRows][kThreadColumns];

// The outputs of a thread, numbered among those that add: which of the sums beside each other, and
// rows and columns within it.
template <typename P>
struct Place {
  // Of 16 rows a warp has all columns, else half of them.
  static constexpr bool kWide = P::kRows == 16;
  static constexpr int kRowStep = kWide ? 8 : 16, kColumnStep = kWide ? 64 : 32;
  static constexpr int kWarps = kAdders / 32 / P::kBeside;  // of a sum
  int beside, row0, column0;

  __device__ __forceinline__ explicit Place(int adder) {
    const int warp = adder / 32 % kWarps, lane = adder % 32;
    beside = adder / 32 / kWarps;
    row0 = kWide ? lane % 2 * 4 : warp / 2 * 32 + (lane / 16 * 2 + lane % 2) * 4;
    column0 = kWide ? lane / 2 * 4 : warp % 2 * 64 + lane / 2 % 8 * 4;
  }
  __device__ __forceinline__ int Row(int i) const { return row0 + i / 4 * kRowStep + i % 4; }
  __device__ __forceinline__ int Column(int j) const {
    return column0 + j / 4 * kColumnStep + j % 4;
  }
};

// The factors of a thread in one term.
template <typename P>
struct Factors {
  float a[kThreadRows], b[kThreadColumns];

  static __device__ __forceinline__ void Load4(const float* from, float* to) {
    const float4 v = *reinterpret_cast<const float4*>(from);
    to[1] = v.x, to[0] = v.y, to[3] = v.z, to[2] = v.w;
  }
  __device__ __forceinline__ void Load(const TilePart<P>& part, const Place<P>& place, int r) {
    const float* const rows = &part.a[r][place.beside * P::kRows + place.row0];
#pragma unroll
    for (int i = 0; i < kThreadRows; i += 4) Load4(rows + i / 4 * place.kRowStep, a + i);
    const float* const columns = &part.b[r][place.beside][place.column0];
#pragma unroll
    for (int j = 0; j < kThreadColumns; j += 4) Load4(columns + j / 4 * place.kColumnStep, b + j);
  }
  __device__ __forceinline__ void Add(ThreadSums& sum) const {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
      for (int step = 0; step < kThreadColumns; ++step) {
        const int j = i % 2 == 0 ? step : kThreadColumns - 1 - step;
        sum[i][j] = arith::Fma(a[i], b[j], sum[i][j]);
      }
    }
  }
};

template <typename P>
__device__ __forceinline__ void AddPart(const TilePart<P>& part, const Place<P>& place,
                                        ThreadSums& sum) {
  Factors<P> factors[2];
  factors[0].Load(part, place, 0);
#pragma unroll
  for (int r = 0; r < P::kDepth; ++r) {
    if (r + 1 < P::kDepth) factors[(r + 1) % 2].Load(part, place, r + 1);
    factors[r % 2].Add(sum);
  }
}

// The next stage into `sum`, by a thread that adds, of which `count` terms are there; the others
// bring the same.
template <typename P>
__device__ __forceinline__ void AddStage(TileRing<P>& ring, Slot<P>& slot, int count,
                                         const Place<P>& place, ThreadSums& sum) {
  ring.full[slot.index].WaitInBlock(slot.parity);
  const TileStage<P>& stage = ring.stages[slot.index];
  if (count >= P::kStageTerms) {
#pragma unroll 1
    for (int i = 0; i < P::kParts; ++i) AddPart(stage.parts[i], place, sum);
  } else {
    // Terms that are not there add nothing, not even +0 to -0.
#pragma unroll 1
    for (int r = 0; r < count; ++r) {
      Factors<P> factors;
      factors.Load(stage.parts[r / P::kDepth], place, r % P::kDepth);
      factors.Add(sum);
    }
  }
  ring.empty[slot.index].Arrive();
  slot.Next();
}
template <typename P>
__device__ __forceinline__ void AddAll(TileRing<P>& ring, Slot<P>& slot, int count,
                                       const Place<P>& place, ThreadSums& sum) {
#pragma unroll 1
  for (int left = count; left > 0; left -= P::kStageTerms) AddStage(ring, slot, left, place, sum);
}

// The next stage, by the threads that bring; `count` terms are left.
template <typename P, typename LoaderA, typename LoaderB>
__device__ __forceinline__ void BringStage(TileRing<P>& ring, Slot<P>& slot, int count, LoaderA& a,
                                           LoaderB& b) {
#pragma unroll
  for (int i = 0; i < P::kParts; ++i) {
    a.Load(count - i * P::kDepth);
    b.Load(count - i * P::kDepth);
    if (i == 0) ring.empty[slot.index].WaitInBlock(slot.parity ^ 1);
    TilePart<P>& part = ring.stages[slot.index].parts[i];
    a.Store(part.a[0]);
    b.Store(part.b[0][0]);
  }
}
template <typename P>
__device__ __forceinline__ void Brought(TileRing<P>& ring, Slot<P>& slot) {
  ring.full[slot.index].Arrive();
  slot.Next();
}
template <typename P, typename LoaderA, typename LoaderB>
__device__ __forceinline__ void BringAll(TileRing<P>& ring, Slot<P>& slot, int count, LoaderA& a,
                                         LoaderB& b) {
#pragma unroll 1
  for (int left = count; left > 0; left -= P::kStageTerms) {
    BringStage(ring, slot, left, a, b);
    Brought(ring, slot);
  }
}

}  // namespace rlk::linear
