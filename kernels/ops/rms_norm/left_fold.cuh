// Left folds: one chain of dependent adds a column. Everything else is kept off that chain's way.
#pragma once

#include <cstdint>

#include "kernels/device/async_copy.cuh"
#include "kernels/ops/rms_norm/weight_gradient.cuh"

namespace rlk::rms_norm {

// A lane that adds rows of shared memory in order, four a read. It adds a batch while the next is
// read whole: reads between the adds cost the chain half as much again (5.5 cycles a row, not 4.2).
class AddingLane {
 public:
  static constexpr int kBatch = 8;  // quads of rows

  __device__ __forceinline__ explicit AddingLane(float sum) : sum_(sum) {}
  __device__ __forceinline__ float sum() const { return sum_; }

  __device__ __forceinline__ void Begin(const float* rows) {
    from_ = reinterpret_cast<const float4*>(rows);
    Read(from_, ahead_);
  }
  // Adds a tile and goes on to the next, whose rows must be there or not be used.
  template <int kRows>
  __device__ __forceinline__ void AddTile(const float* next_rows) {
    constexpr int kQuads = kRows / 4;
    static_assert(kQuads % (2 * kBatch) == 0);
    const auto* next = reinterpret_cast<const float4*>(next_rows);
    float4 other[kBatch];
#pragma unroll
    for (int quad = kBatch; quad < kQuads; quad += 2 * kBatch) {
      Read(from_ + quad, other);
      AddBatch(ahead_);
      Read(quad + kBatch < kQuads ? from_ + quad + kBatch : next, ahead_);
      AddBatch(other);
    }
    from_ = next;
  }
  __device__ __forceinline__ void AddRest(int rows) {
    const auto* c = reinterpret_cast<const float*>(from_);
    for (int row = 0; row < rows; ++row) sum_ = arith::Add(sum_, c[row]);
  }

 private:
  __device__ __forceinline__ static void Read(const float4* from, float4 (&batch)[kBatch]) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) batch[i] = from[i];
  }
  __device__ __forceinline__ void AddBatch(const float4 (&batch)[kBatch]) {
#pragma unroll
    for (const float4& c : batch) {
      sum_ = arith::Add(arith::Add(arith::Add(arith::Add(sum_, c.x), c.y), c.z), c.w);
    }
  }

  float sum_;
  const float4* from_ = nullptr;
  float4 ahead_[kBatch];
};

// A source of terms: those that BackwardNarrowKernel stored.
struct StoredTermLoader {
  device::Vector<float, kGroup> c;

  __device__ __forceinline__ void Load(const FoldPointers& p, const Scalars& s, int64_t row,
                                       int column) {
    c.LoadHere(p.terms + row * s.length + column);
  }
  __device__ __forceinline__ void Terms(const Scalars&, float (&out)[kGroup]) const {
    c.ToFloats(out);
  }
};

inline constexpr int kLeftFoldThreads = 32 + 256;

// A left fold of a block: kColumns columns, tiles of kTileRows rows. The first warp adds, a lane a
// column, while the others make the terms of later rows.
template <typename Loader, int kColumns, int kTileRows, int kDepth>
struct LeftFoldBlock {
  static constexpr int kBuffers = 4;  // tiles: one made, one or two whole, one added
  static constexpr int kVectors = kColumns / kGroup;
  static constexpr int kMakers = kLeftFoldThreads - 32;
  static constexpr int kPerThread = kTileRows * kVectors / kMakers;  // vectors of a tile
  static constexpr int kPitch = kTileRows + 4;
  // Column-major, so that the adding lane reads four rows at once.
  using Terms = float[kBuffers][kColumns][kPitch];

  const FoldPointers& p;
  const Scalars& s;
  Terms& terms;
  int first_column;

  __device__ __forceinline__ int Tiles() const {
    return static_cast<int>((s.rows + kTileRows - 1) / kTileRows);
  }
  // Step i makes tile i while tile i - 2 is added; a multiple of kDepth.
  __device__ __forceinline__ int Steps() const {
    return (Tiles() + 2 + kDepth - 1) / kDepth * kDepth;
  }

  __device__ __forceinline__ float Add() {
    const int column = static_cast<int>(threadIdx.x) % kColumns;
    const int tiles = Tiles(), whole = static_cast<int>(s.rows / kTileRows), steps = Steps();
    AddingLane lane(p.carry != nullptr ? p.carry[first_column + column] : 0.0f);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      const int tile = step - 2;
      if (tile == 0) lane.Begin(terms[0][column]);
      if (tile >= 0 && tile < whole) {
        lane.template AddTile<kTileRows>(terms[(tile + 1) % kBuffers][column]);
      } else if (tile >= 0 && tile < tiles) {
        lane.AddRest(static_cast<int>(s.rows - int64_t{tile} * kTileRows));
      }
      __syncthreads();
    }
    return lane.sum();
  }

  __device__ __forceinline__ void Make() {
    const int maker = static_cast<int>(threadIdx.x) - 32, steps = Steps();
    const int tile_row = maker / kVectors, tile_column = maker % kVectors * kGroup;
    Loader loads[kDepth][kPerThread];
    const auto load = [&](int d, int tile) {
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) {
        const int64_t row = int64_t{tile} * kTileRows + tile_row + i * (kMakers / kVectors);
        // Beyond the last row: its terms again, which nobody adds.
        loads[d][i].Load(p, s, row < s.rows ? row : s.rows - 1, first_column + tile_column);
      }
    };
#pragma unroll
    for (int d = 0; d < kDepth; ++d) load(d, d);
#pragma unroll 1
    for (int begin = 0; begin < steps; begin += kDepth) {
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        float c[kPerThread][kGroup];
#pragma unroll
        for (int i = 0; i < kPerThread; ++i) loads[d][i].Terms(s, c[i]);
        load(d, begin + d + kDepth);
#pragma unroll
        for (int i = 0; i < kPerThread; ++i) {
          float* to =
              &terms[(begin + d) % kBuffers][tile_column][tile_row + i * (kMakers / kVectors)];
#pragma unroll
          for (int e = 0; e < kGroup; ++e) to[e * kPitch] = c[i][e];
        }
        __syncthreads();
      }
    }
  }
};

// Contiguous, 16-byte aligned, length a multiple of kColumns, one row or more. Grid: length /
// kColumns.
template <typename X, typename Loader, int kColumns, int kTileRows, int kDepth>
__global__ void __launch_bounds__(kLeftFoldThreads)
    LeftFoldKernel(const FoldPointers p, const Scalars s) {
  using Block = LeftFoldBlock<Loader, kColumns, kTileRows, kDepth>;
  __shared__ alignas(16) typename Block::Terms terms;
  Block block{p, s, terms, static_cast<int>(blockIdx.x) * kColumns};
  if (threadIdx.x >= 32) {
    block.Make();
    return;
  }
  const float sum = block.Add();
  if (threadIdx.x < kColumns) {
    StoreGradient<X>(p, s, block.first_column + static_cast<int>(threadIdx.x), sum);
  }
}

// Ascending sum of chunk128's partial sums: a block owns 8 columns, and its first lanes add.
inline constexpr int kPartialColumns = 8;
inline constexpr int kPartialTile = 512;
inline constexpr int kPartialThreads = 256;

template <typename X>
__global__ void __launch_bounds__(kPartialThreads)
    ChunkFoldKernel(const FoldPointers p, const Scalars s) {
  constexpr int kRows = kPartialThreads / kPartialColumns;
  constexpr int kLoads = kPartialTile / kRows;
  __shared__ alignas(16) float tile[2][kPartialColumns][kPartialTile + 4];
  const int lane = static_cast<int>(threadIdx.x) % kPartialColumns;
  const int row = static_cast<int>(threadIdx.x) / kPartialColumns;
  const int column = static_cast<int>(blockIdx.x) * kPartialColumns + lane;
  const bool inside = column < s.length;
  const int chunks = static_cast<int>((s.rows + kFoldRows - 1) / kFoldRows);
  float held[kLoads];
  const auto load = [&](int begin) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int chunk = begin + i * kRows + row;
      held[i] = inside && chunk < chunks ? p.partials[int64_t{chunk} * s.length + column] : 0.0f;
    }
  };
  device::WaitForLaunchAhead();
  load(0);
  AddingLane adder(inside && row == 0 && p.carry != nullptr ? p.carry[column] : 0.0f);
  int parity = 0;
#pragma unroll 1
  for (int begin = 0; begin < chunks; begin += kPartialTile, parity ^= 1) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) tile[parity][lane][i * kRows + row] = held[i];
    __syncthreads();
    load(begin + kPartialTile);
    if (row != 0) continue;
    adder.Begin(tile[parity][lane]);
    if (chunks - begin >= kPartialTile) {
      adder.AddTile<kPartialTile>(tile[parity][lane]);
    } else {
      adder.AddRest(chunks - begin);
    }
  }
  if (row == 0 && inside) StoreGradient<X>(p, s, column, adder.sum());
}

}  // namespace rlk::rms_norm
