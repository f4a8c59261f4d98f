// Left folds fed by bulk tensor copies (sm_90 and later). The operations and their order are those
// of left_fold.cuh.
//
// What bounds them on an H200 is measured: a chain of adds takes 4.2 cycles a row, but wide rows
// come in slices of 32 bytes, of which the memory system delivers some 75e9 a second; slices of 64
// bytes in half as many blocks take longer, and so do blocks of a cluster that send each other
// terms.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/device/bulk_copy_sm90.cuh"
#include "kernels/device/named_barrier.cuh"
#include "kernels/device/published.cuh"
#include "kernels/device/tensor_copy_sm90.cuh"
#include "kernels/ops/rms_norm/left_fold.cuh"

namespace rlk::rms_norm {

// The operands of the terms, as tiles of kTileRows x kColumns of WideFold.
struct FoldMaps {
  CUtensorMap x, grad_y, gate;
};

// Wide rows: a block takes 16 columns. One warp adds, one copies tiles of the operands, four make
// terms of them. The adding warp has its scheduler to itself but for the copying one: warp w
// belongs to scheduler w % 4.
template <typename X, Convention kConvention, int kStages>
struct WideFold {
  static constexpr int kColumns = 16, kTileRows = 128;
  static constexpr int kBuffers = 4;  // tiles of terms; kStages of operands
  static constexpr int kPitch = kTileRows + 4;
  static constexpr int kMakers = 128;
  static constexpr int kThreads = 256;
  static constexpr int kAddingWarp = 0, kCopyingWarp = 4;
  static constexpr int kPerThread = kTileRows * kColumns / kGroup / kMakers;  // vectors of a tile
  static constexpr int kOperands = IsGated(kConvention) ? 3 : 2;

  struct Memory {
    // A bulk copy's destination is 128-byte aligned.
    X operands[kStages][kOperands][kTileRows][kColumns];
    float statistic[kStages][kTileRows];
    // Column-major, so that the adding lane reads four rows at once.
    float terms[kBuffers][kColumns][kPitch];
    device::StageBarrier there[kStages], read[kStages];
  };
  static_assert(sizeof(X) == 2);

  const FoldPointers& p;
  const Scalars& s;
  const FoldMaps& maps;
  Memory& memory;

  __device__ __forceinline__ int Tiles() const {
    return static_cast<int>((s.rows + kTileRows - 1) / kTileRows);
  }
  // The tile of terms is whole; its buffer may be written again.
  using Barrier = device::NamedBarrier<32 + kMakers>;
  __device__ __forceinline__ static Barrier Whole(int tile) { return {1 + tile % kBuffers}; }
  __device__ __forceinline__ static Barrier Free(int tile) {
    return {1 + kBuffers + tile % kBuffers};
  }
  __device__ __forceinline__ static int FirstColumn() {
    return static_cast<int>(blockIdx.x) * kColumns;
  }

  // By one thread.
  __device__ __forceinline__ void Init() {
    for (int i = 0; i < kStages; ++i) {
      memory.there[i].Init(1);
      memory.read[i].Init(kMakers / 32);
    }
    device::StageBarrier::FenceInit();
  }

  // By one thread.
  __device__ __forceinline__ void Copy() {
    const int tiles = Tiles();
    for (int tile = 0; tile < tiles; ++tile) {
      const int stage = tile % kStages, row = tile * kTileRows;
      // To 16 bytes: the statistic's workspace is longer than its rows.
      const auto rows = static_cast<int>(s.rows - row < kTileRows ? (s.rows - row + 3) / 4 * 4
                                                                  : int64_t{kTileRows});
      const device::StageBarrier& there = memory.there[stage];
      memory.read[stage].Wait((tile / kStages & 1) ^ 1);
      memory.there[stage].ArriveExpect(static_cast<int>(sizeof(memory.operands[0])) + rows * 4);
      auto& operands = memory.operands[stage];
      device::TileCopy(operands[0], maps.x, row, FirstColumn(), there);
      device::TileCopy(operands[1], maps.grad_y, row, FirstColumn(), there);
      if constexpr (IsGated(kConvention)) {
        device::TileCopy(operands[2], maps.gate, row, FirstColumn(), there);
      }
      device::BulkCopy(memory.statistic[stage], p.rstd + row, rows * 4, there);
    }
  }

  // Vector i of the `maker`: a row, and the first of 8 columns.
  __device__ __forceinline__ static int Row(int maker, int i) {
    return (i * kMakers + maker) / (kColumns / kGroup);
  }
  __device__ __forceinline__ static int Column(int maker) {
    return maker % (kColumns / kGroup) * kGroup;
  }

  __device__ __forceinline__ void Make(int maker) {
    const int tiles = Tiles(), column = Column(maker);
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      const int stage = tile % kStages;
      const auto& operands = memory.operands[stage];
      memory.there[stage].Wait(tile / kStages & 1);
      float c[kPerThread][kGroup];
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) {
        const int row = Row(maker, i);
        TermLoader<X, X, kConvention> inputs;
        inputs.x.LoadShared(&operands[0][row][column]);
        inputs.grad_y.LoadShared(&operands[1][row][column]);
        if constexpr (IsGated(kConvention)) {
          inputs.gate.LoadShared(&operands[kOperands - 1][row][column]);
        }
        // Beyond the last row: something, which nobody adds.
        inputs.r = memory.statistic[stage][row];
        inputs.Terms(s, c[i]);
      }
      __syncwarp();
      if (maker % 32 == 0) memory.read[stage].Arrive();
      if (tile >= kBuffers) Free(tile).Wait();
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) {
        float* to = &memory.terms[tile % kBuffers][column][Row(maker, i)];
#pragma unroll
        for (int e = 0; e < kGroup; ++e) to[e * kPitch] = c[i][e];
      }
      Whole(tile).Arrive();
    }
  }

  __device__ __forceinline__ void Add() {
    const int lane = static_cast<int>(threadIdx.x) % 32, lane_column = lane % kColumns;
    const int column = FirstColumn() + lane_column;
    const bool inside = lane < kColumns && column < s.length;
    const int tiles = Tiles(), whole = static_cast<int>(s.rows / kTileRows);
    AddingLane adder(inside && p.carry != nullptr ? p.carry[column] : 0.0f);
    Whole(0).Wait();
    adder.Begin(memory.terms[0][lane_column]);
#pragma unroll 1
    for (int tile = 0; tile < whole; ++tile) {
      if (tile + 1 < tiles) Whole(tile + 1).Wait();
      adder.AddTile<kTileRows>(memory.terms[(tile + 1) % kBuffers][lane_column]);
      if (tile + kBuffers < tiles) Free(tile).Arrive();
    }
    if (whole < tiles) adder.AddRest(static_cast<int>(s.rows - int64_t{whole} * kTileRows));
    if (inside) StoreGradient<X>(p, s, column, adder.sum());
  }
};

// Contiguous, 16-byte aligned, length a multiple of 8, one row or more. Grid: ceil(length / 16).
template <typename X, Convention kConvention, int kStages>
__global__ void __launch_bounds__(WideFold<X, kConvention, kStages>::kThreads)
    WideLeftFoldKernel(const __grid_constant__ FoldMaps maps, const FoldPointers p,
                       const Scalars s) {
#if __CUDA_ARCH__ >= 900
  using Fold = WideFold<X, kConvention, kStages>;
  extern __shared__ __align__(128) uint4 dynamic_memory[];
  Fold fold{p, s, maps, *reinterpret_cast<typename Fold::Memory*>(dynamic_memory)};
  if (threadIdx.x == 0) fold.Init();
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int making = warp - 1 - warp / 4;  // among the warps that are no multiple of 4
  if (warp == Fold::kAddingWarp) {
    fold.Add();
  } else if (warp == Fold::kCopyingWarp) {
    if (lane == 0) fold.Copy();
  } else if (warp % 4 != 0 && making < Fold::kMakers / 32) {
    fold.Make(making * 32 + lane);
  }
#endif
}

// Narrow rows: a block takes 16 columns of the terms that BackwardNarrowStoringKernel stores,
// column after column of 128 rows, and runs beside it. One warp adds, one copies.
struct StoredFold {
  static constexpr int kColumns = 16;
  // Of kFoldRows, of a tile: each wait costs the chain 100 cycles.
  static constexpr int kBlocks = 4;
  static constexpr int kTileRows = kBlocks * kFoldRows;
  static constexpr int kStages = 4;
  static constexpr int kThreads = 64;

  struct Memory {
    float terms[kStages][kBlocks][kColumns][kStoredPitch];
    device::StageBarrier there[kStages], read[kStages];
  };

  const FoldPointers& p;
  const Scalars& s;
  Memory& memory;

  __device__ __forceinline__ int Tiles() const {
    return static_cast<int>((s.rows + kTileRows - 1) / kTileRows);
  }
  __device__ __forceinline__ static int FirstColumn() {
    return static_cast<int>(blockIdx.x) * kColumns;
  }

  // By one thread.
  __device__ __forceinline__ void Init() {
    for (int i = 0; i < kStages; ++i) {
      memory.there[i].Init(1);
      memory.read[i].Init(1);
    }
    device::StageBarrier::FenceInit();
  }

  // By a warp.
  __device__ __forceinline__ void Copy() {
    const int lane = static_cast<int>(threadIdx.x) % 32, rest = s.length - FirstColumn();
    const int blocks = static_cast<int>((s.rows + kFoldRows - 1) / kFoldRows);
    const int bytes =
        (rest < kColumns ? rest : kColumns) * kStoredPitch * static_cast<int>(sizeof(float));
    int known = 0;  // the blocks before are there
    for (int block = 0; block < blocks; ++block) {
      while (block >= known) {
        const int mine = block + lane;
        const bool there = mine >= blocks || device::LoadAcquire(p.ready + mine) != 0;
        const unsigned missing = ~__ballot_sync(0xffffffffu, there);
        known = block + (missing == 0 ? 32 : __ffs(static_cast<int>(missing)) - 1);
      }
      __syncwarp();
      if (lane != 0) continue;
      const int tile = block / kBlocks, stage = tile % kStages, left = blocks - tile * kBlocks;
      device::FenceBeforeBulkCopy();
      if (block % kBlocks == 0) {
        memory.read[stage].Wait((tile / kStages & 1) ^ 1);
        memory.there[stage].ArriveExpect((left < kBlocks ? left : kBlocks) * bytes);
      }
      device::BulkCopy(memory.terms[stage][block % kBlocks],
                       p.terms + (int64_t{block} * s.length + FirstColumn()) * kStoredPitch, bytes,
                       memory.there[stage]);
    }
  }

  __device__ __forceinline__ const float* Rows(int tile, int block, int column) const {
    return memory.terms[tile % kStages][block][column];
  }
  __device__ __forceinline__ void Await(int tile) const {
    memory.there[tile % kStages].Wait(tile / kStages & 1);
  }

  template <typename X>
  __device__ __forceinline__ void Add() {
    const int lane = static_cast<int>(threadIdx.x) % 32, lane_column = lane % kColumns;
    const int column = FirstColumn() + lane_column;
    const bool inside = lane < kColumns && column < s.length;
    const int tiles = Tiles(), whole = static_cast<int>(s.rows / kTileRows);
    AddingLane adder(inside && p.carry != nullptr ? p.carry[column] : 0.0f);
    Await(0);
    adder.Begin(Rows(0, 0, lane_column));
#pragma unroll 1
    for (int tile = 0; tile < whole; ++tile) {
      const int next = tile + 1;
      const bool ready = memory.there[next % kStages].Test(next / kStages & 1);  // used below
#pragma unroll
      for (int block = 1; block < kBlocks; ++block) {
        adder.AddTile<kFoldRows>(Rows(tile, block, lane_column));
      }
      if (!ready && next < tiles) Await(next);
      adder.AddTile<kFoldRows>(Rows(next, 0, lane_column));
      __syncwarp();
      if (lane == 0) memory.read[tile % kStages].Arrive();
    }
    auto rest = static_cast<int>(s.rows - int64_t{whole} * kTileRows);
    for (int block = 1; rest >= kFoldRows; ++block, rest -= kFoldRows) {
      adder.AddTile<kFoldRows>(Rows(whole, block % kBlocks, lane_column));
    }
    adder.AddRest(rest);
    if (inside) StoreGradient<X>(p, s, column, adder.sum());
  }
};

// Contiguous, 16-byte aligned, length a multiple of 8, one row or more. Grid: ceil(length / 16).
template <typename X>
__global__ void __launch_bounds__(StoredFold::kThreads)
    StoredLeftFoldKernel(const FoldPointers p, const Scalars s) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint4 dynamic_memory[];
  StoredFold fold{p, s, *reinterpret_cast<StoredFold::Memory*>(dynamic_memory)};
  if (threadIdx.x == 0) fold.Init();
  __syncthreads();
  if (threadIdx.x < 32) {
    fold.Add<X>();
  } else {
    fold.Copy();
  }
  // The end of this kernel is also that of the one ahead.
  device::WaitForLaunchAhead();
#endif
}

}  // namespace rlk::rms_norm
