// chunk128 in one pass for narrow rows of a 16-bit type: what a thread reads of its next rows is on
// its way to shared memory while it computes these, and nobody else reads it, so that no barrier
// belongs to it. With loads into registers the kernel would have to choose between spilled
// registers and rows that wait for memory.
#pragma once

#include <cstdint>

#include "kernels/device/async_copy.cuh"
#include "kernels/ops/rms_norm/backward_narrow.cuh"

namespace rlk::rms_norm {

// Of a thread at a time, and how many times are in flight.
inline constexpr int kChunkNarrowRows = 2;
inline constexpr int kChunkNarrowStages = 2;

template <Convention kConvention, int kLanes>
struct ChunkNarrowShape {
  static constexpr int kTensors = IsGated(kConvention) ? 3 : 2;
  static constexpr int kGroups = kNarrowThreads / kLanes;
  static constexpr int kPassRows = kGroups * kChunkNarrowRows;
  static constexpr int kColumns = kLanes * kGroup;
};

// Dynamic shared memory of a block. The terms of a pass of rows: column 8 l + e of a row stands at
// 4 l + e for e < 4, and half a row further for the others, so that lanes store into different
// banks.
template <Convention kConvention, int kLanes>
struct ChunkNarrowMemory {
  using Shape = ChunkNarrowShape<kConvention, kLanes>;
  uint4 ahead[kChunkNarrowStages][kChunkNarrowRows][Shape::kTensors][kNarrowThreads];
  float terms[2][Shape::kPassRows][Shape::kColumns];
};

// What a thread has of a pass of rows, one after the other: kChunkNarrowRows of them, kGroups
// apart.
template <typename X, Convention kConvention, int kLanes, Activation kActivation>
struct ChunkNarrowThread {
  using Shape = ChunkNarrowShape<kConvention, kLanes>;
  using Memory = ChunkNarrowMemory<kConvention, kLanes>;
  static constexpr bool kGated = IsGated(kConvention);
  static constexpr int kRows = kChunkNarrowRows, kGroups = Shape::kGroups;
  using PerLane = RowPerLane<kLanes, kRows>;

  const BackwardPointers& p;
  const Scalars& s;
  Memory& memory;
  const int thread, lane, row, column, step;
  const int64_t begin;
  const int rows;
  const bool inside;
  const int64_t first;

  float w[kGroup];
  int mine;    // row i kGroups of this thread exists below it
  int64_t at;  // of its first row
  device::Vector<X, kGroup> x[kRows], dy[kRows], gate[kGated ? kRows : 1];
  float r[kRows], g[kRows][kGroup], dots[kRows];

  __device__ __forceinline__ ChunkNarrowThread(const BackwardPointers& pointers,
                                               const Scalars& scalars, Memory& shared)
      : p(pointers),
        s(scalars),
        memory(shared),
        thread(static_cast<int>(threadIdx.x)),
        lane(thread % kLanes),
        row(thread / kLanes),
        column(lane * kGroup),
        step(kGroups * scalars.length),
        begin(int64_t{blockIdx.x} * kFoldRows),
        rows(static_cast<int>(scalars.rows - begin < kFoldRows ? scalars.rows - begin : kFoldRows)),
        inside(column < scalars.length),
        first((begin + row) * scalars.length + column) {
    LoadWeights<X, kConvention>(p.weight, column, s, w);
  }

  // Sends for the rows of a pass.
  __device__ __forceinline__ void Copy(int pass, int stage) const {
    if (pass < rows) {
      const int64_t at = first + static_cast<int64_t>(pass) * s.length;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const bool present = inside && pass + row + i * kGroups < rows;
        const int64_t from = present ? at + i * step : 0;
        auto& to = memory.ahead[stage][i];
        device::CopyAsync16(&to[0][thread], static_cast<const X*>(p.x) + from, present);
        device::CopyAsync16(&to[1][thread], static_cast<const X*>(p.grad_y) + from, present);
        if constexpr (kGated) {
          device::CopyAsync16(&to[2][thread], static_cast<const X*>(p.gate) + from, present);
        }
      }
    }
    device::CopyAsyncCommit();
  }

  // Takes the rows of a pass, which are there, and their statistics.
  __device__ __forceinline__ void Take(int pass, int stage) {
    mine = rows - pass - row;
    at = first + static_cast<int64_t>(pass) * s.length;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const auto& from = memory.ahead[stage][i];
      x[i].LoadShared(reinterpret_cast<const X*>(&from[0][thread]));
      dy[i].LoadShared(reinterpret_cast<const X*>(&from[1][thread]));
      if constexpr (kGated) gate[i].LoadShared(reinterpret_cast<const X*>(&from[2][thread]));
    }
    float own = 0.0f;
    if (p.rstd_in != nullptr) {
      const int of_lane = PerLane::RowOfLane(lane) * kGroups;
      if (of_lane < mine) own = p.rstd_in[begin + pass + row + of_lane];
    } else {
#pragma unroll
      for (int i = 0; i < kRows; ++i) dots[i] = SumOfSquares(x[i]);
      own = RowStatistic(PerLane::Fold(dots, lane), static_cast<float>(s.length), s.eps);
    }
    PerLane::Spread(own, r);
  }

  // grad_gate, the terms of grad_weight, and what grad_x needs.
  __device__ __forceinline__ void Compute(int parity) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      float xs[kGroup], dys[kGroup], zs[kGroup] = {}, products[kGroup], c[kGroup], dz[kGroup];
      x[i].ToFloats(xs);
      dy[i].ToFloats(dys);
      if constexpr (kGated) gate[i].ToFloats(zs);
#pragma unroll
      for (int e = 0; e < kGroup; ++e) {
        const Terms terms = Backward<kConvention, FormulaType<X>>(xs[e], r[i], w[e], dys[e], zs[e],
                                                                  kActivation, s.round_weighted);
        g[i][e] = terms.g;
        c[e] = terms.c;
        dz[e] = terms.grad_gate;
        products[e] = arith::Fma(terms.g, terms.xh, 0.0f);
      }
      if constexpr (kGated) {
        if (inside && i * kGroups < mine && p.grad_gate != nullptr) {
          device::Vector<X, kGroup> result;
          result.FromFloats(dz);
          result.Store(static_cast<X*>(p.grad_gate) + at + i * step);
        }
      }
      dots[i] = inside ? FoldGroup(products) : 0.0f;
      auto* to = reinterpret_cast<float4*>(memory.terms[parity][row + i * kGroups]);
      to[lane] = make_float4(c[0], c[1], c[2], c[3]);
      to[kLanes + lane] = make_float4(c[4], c[5], c[6], c[7]);
    }
  }

  __device__ __forceinline__ void WriteGradX() {
    float k[kRows];
    PerLane::Spread(arith::Div(PerLane::Fold(dots, lane), static_cast<float>(s.length)), k);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (!inside || i * kGroups >= mine || p.grad_x == nullptr) continue;
      float xs[kGroup], out[kGroup];
      x[i].ToFloats(xs);
#pragma unroll
      for (int e = 0; e < kGroup; ++e) {
        out[e] = GradX({arith::Mul(xs[e], r[i]), g[i][e], 0.0f, 0.0f}, r[i], k[i]);
      }
      device::Vector<X, kGroup> result;
      result.FromFloats(out);
      result.Store(static_cast<X*>(p.grad_x) + at + i * step);
    }
  }
};

// Contiguous, 16-byte aligned, length a multiple of 8 and at most 8 kLanes; X has 16 bits and is
// the type of grad_y too. A block takes 128 rows and writes their sum of terms. Grid:
// ceil(rows / 128).
template <typename X, Convention kConvention, int kLanes, Activation kActivation>
__global__ void __launch_bounds__(kNarrowThreads, 2)
    ChunkNarrowKernel(const BackwardPointers p, const FoldPointers fold, const Scalars s) {
  using Shape = ChunkNarrowShape<kConvention, kLanes>;
  constexpr int kPassRows = Shape::kPassRows, kColumns = Shape::kColumns;
  extern __shared__ __align__(16) unsigned char bytes[];
  auto& memory = *reinterpret_cast<ChunkNarrowMemory<kConvention, kLanes>*>(bytes);
  ChunkNarrowThread<X, kConvention, kLanes, kActivation> work(p, s, memory);
#pragma unroll
  for (int stage = 0; stage < kChunkNarrowStages; ++stage) work.Copy(stage * kPassRows, stage);
  const int thread = static_cast<int>(threadIdx.x), rows = work.rows;
  float partial = 0.0f;
  int stage = 0, parity = 0;
#pragma unroll 1
  for (int pass = 0; pass < rows; pass += kPassRows, parity ^= 1) {
    device::CopyAsyncWait<kChunkNarrowStages - 1>();
    work.Take(pass, stage);
    work.Compute(parity);
    work.Copy(pass + kChunkNarrowStages * kPassRows, stage);
    stage = stage + 1 == kChunkNarrowStages ? 0 : stage + 1;
    work.WriteGradX();
    // The other half of memory.terms is written next: one barrier a pass is enough.
    __syncthreads();
    if (thread < kColumns) {
      partial =
          AddColumn<kPassRows, kColumns>(memory.terms[parity][0] + thread, rows - pass, partial);
    }
  }
  const int at = thread % (kColumns / 2);  // the column whose terms this thread added
  const int added = at / 4 * kGroup + thread / (kColumns / 2) * 4 + at % 4;
  if (thread < kColumns && added < s.length) {
    fold.partials[int64_t{blockIdx.x} * s.length + added] = partial;
  }
  device::AllowLaunchBehind();
}

}  // namespace rlk::rms_norm
