// chunk128 in one pass over x and grad_y, for rows of 257 to 8,192 elements on sm_90: a cluster of
// blocks owns a chunk of 128 rows, each block a stripe of the row's accumulators and so of its
// columns. A warp takes 128 accumulators of a row, 4 a lane; the blocks of the cluster exchange the
// partial sums. Then a thread owns columns and adds the terms of a batch of rows in order.
#pragma once

#include <cstdint>

#include "kernels/device/async_copy.cuh"
#include "kernels/device/cluster_sm90.cuh"
#include "kernels/ops/rms_norm/weight_gradient.cuh"

namespace rlk::rms_norm {

inline constexpr int kClusterThreads = 512;
inline constexpr int kWarpStripe = 128;  // accumulators of a warp: 4 a lane

// A row of up to kWidth kTurns elements: kWidth accumulators over kRanks blocks.
template <int kWidth, int kRanks, int kTurns>
struct ChunkShape {
  static constexpr int width = kWidth;
  static constexpr int ranks = kRanks;
  static constexpr int turns = kTurns;
  static constexpr int stripe = kWidth / kRanks;          // accumulators of a block
  static constexpr int columns = stripe * kTurns;         // of a block, some beyond the row's end
  static constexpr int row_warps = stripe / kWarpStripe;  // warps of a row in a block
  static constexpr int parts = kWidth / kWarpStripe;      // partial sums of a row
  static constexpr int batch = kClusterThreads / 32 / row_warps;  // rows
  static constexpr int pairs = (columns / 2 + kClusterThreads - 1) / kClusterThreads;
};

// Dynamic shared memory of a block.
template <typename X, typename Shape>
struct ChunkMemory {
  float weight[Shape::columns];  // with the offset
  float terms[Shape::batch][Shape::columns];
  X x[2][Shape::batch][Shape::columns];
  X grad_y[2][Shape::batch][Shape::columns];
};

template <typename T>
__device__ __forceinline__ void ReadQuad(const T* p, float (&out)[4]) {
  device::Vector<T, 4> v;
  v.LoadShared(p);
  v.ToFloats(out);
}

// One block. `batch` counts the batches of the chunk.
template <typename X, Convention kConvention, typename Shape>
struct ChunkBlock {
  static constexpr int kTurns = Shape::turns, kStripe = Shape::stripe;

  const BackwardPointers& p;
  const Scalars& s;
  ChunkMemory<X, Shape>& memory;
  // Sums of a batch (x) and of the statistic of the next (y), by phase.
  float2 (&parts_of)[2][Shape::batch][Shape::parts];
  // Two, in turns: a block that is ahead may send what belongs to the next phase.
  device::TransferBarrier (&barriers)[2];
  int rank, rows;  // rows of the chunk
  int64_t begin;   // its first row
  int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  int batch_row = warp / Shape::row_warps;
  int stripe_begin = warp % Shape::row_warps * kWarpStripe;
  int local = stripe_begin + lane * 4;  // column of turn 0 in the block
  int column = rank * kStripe + local;  // and in the row
  float g[kTurns][4] = {}, xh[kTurns][4] = {};
  float sums[Shape::pairs][2] = {};

  __device__ __forceinline__ int GlobalColumn(int at) const {
    return at / kStripe * Shape::width + rank * kStripe + at % kStripe;
  }

  __device__ __forceinline__ void LoadWeights() {
    for (int at = thread; at < Shape::columns; at += kClusterThreads) {
      const int global = GlobalColumn(at);
      memory.weight[at] =
          global < s.length
              ? EffectiveWeight<kConvention>(LoadElement<X>(p.weight, global, s.weight_is_f32), s)
              : 0.0f;
    }
  }

  // A warp copies what it reads itself: its stripe of its row of the batch.
  __device__ __forceinline__ void CopyTensor(X* to, const void* from, int64_t row) {
    constexpr int kElements = 16 / static_cast<int>(sizeof(X));
    constexpr int kLanes = kWarpStripe / kElements;  // of a turn: 16 or 32
    constexpr int kAtOnce = 32 / kLanes;
    const int turn = lane / kLanes;
    const int first = stripe_begin + lane % kLanes * kElements;
    const int from_column = turn * Shape::width + rank * kStripe + first;
    const X* row_from = static_cast<const X*>(from) + row * s.length + from_column;
    to += turn * kStripe + first;
#pragma unroll
    for (int i = 0; i < kTurns; i += kAtOnce) {
      if (kTurns % kAtOnce != 0 && i + turn >= kTurns) break;
      const bool present = from_column + i * Shape::width < s.length;
      device::CopyAsync16(to + i * kStripe, present ? row_from + i * Shape::width : from, present);
    }
  }
  __device__ __forceinline__ void Copy(int batch) {
    const int row = batch * Shape::batch + batch_row;
    if (row < rows) {
      CopyTensor(memory.x[batch & 1][batch_row], p.x, begin + row);
      CopyTensor(memory.grad_y[batch & 1][batch_row], p.grad_y, begin + row);
    }
    device::CopyAsyncCommit();
  }

  __device__ __forceinline__ static float FoldOwn(const float (&a)[4]) {
    return FoldLanes<32>(arith::Add(arith::Add(a[0], a[1]), arith::Add(a[2], a[3])));
  }
  __device__ __forceinline__ void Send(int phase, float dot, float statistic) {
    const float2* to =
        &parts_of[phase & 1][batch_row][rank * Shape::row_warps + warp % Shape::row_warps];
    if (lane < Shape::ranks) barriers[phase & 1].Send(to, lane, make_float2(dot, statistic));
  }
  __device__ __forceinline__ float2 Receive(int phase) {
    barriers[phase & 1].Wait(phase >> 1);
    float2 sum = parts_of[phase & 1][batch_row][lane % Shape::parts];
#pragma unroll
    for (int l = 1; l < Shape::parts; l *= 2) {
      sum.x = arith::Add(sum.x, __shfl_xor_sync(device::kWholeWarp, sum.x, l));
      sum.y = arith::Add(sum.y, __shfl_xor_sync(device::kWholeWarp, sum.y, l));
    }
    return make_float2(arith::Add(sum.x, 0.0f), arith::Add(sum.y, 0.0f));
  }
  // By one thread, once a phase.
  __device__ __forceinline__ void Expect(int phase) {
    if (thread == 0) barriers[phase & 1].Expect(static_cast<int>(sizeof(parts_of[0])));
  }

  __device__ __forceinline__ float StatisticPart(int batch) {
    float accumulators[4] = {};
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      float xs[4];
      ReadQuad(&memory.x[batch & 1][batch_row][local + turn * kStripe], xs);
#pragma unroll
      for (int e = 0; e < 4; ++e) accumulators[e] = arith::Fma(xs[e], xs[e], accumulators[e]);
    }
    return FoldOwn(accumulators);
  }

  // g, xh and the terms of this warp's row; returns its part of the dot.
  __device__ __forceinline__ float MakeTerms(int batch, float r) {
    float accumulators[4] = {};
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int at = local + turn * kStripe;
      float xs[4], dys[4], ws[4], c[4];
      ReadQuad(&memory.x[batch & 1][batch_row][at], xs);
      ReadQuad(&memory.grad_y[batch & 1][batch_row][at], dys);
      ReadQuad(&memory.weight[at], ws);
      // Beyond the row's end everything is 0, and stays so whatever the statistic is.
      const float turn_r = column + turn * Shape::width < s.length ? r : 0.0f;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const Terms terms = Backward<kConvention, FormulaType<X>>(
            xs[e], turn_r, ws[e], dys[e], 0.0f, s.activation(), s.round_weighted);
        g[turn][e] = terms.g;
        xh[turn][e] = terms.xh;
        accumulators[e] = arith::Fma(terms.g, terms.xh, accumulators[e]);
        c[e] = terms.c;
      }
      *reinterpret_cast<float4*>(&memory.terms[batch_row][at]) =
          make_float4(c[0], c[1], c[2], c[3]);
    }
    return FoldOwn(accumulators);
  }

  __device__ __forceinline__ void StoreGradX(int64_t row, float r, float k) {
    if (p.grad_x == nullptr || row >= s.rows) return;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      if (column + turn * Shape::width >= s.length) break;
      float out[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        Terms terms = {};
        terms.g = g[turn][e];
        terms.xh = xh[turn][e];
        out[e] = GradX(terms, r, k);
      }
      device::Vector<X, 4> result;
      result.FromFloats(out);
      result.Store(static_cast<X*>(p.grad_x) + row * s.length + column + turn * Shape::width);
    }
  }

  // Adds `count` rows of terms to this thread's columns.
  __device__ __forceinline__ void AddTerms(int count) {
#pragma unroll
    for (int i = 0; i < Shape::pairs; ++i) {
      const int at = (i * kClusterThreads + thread) * 2;
      if (at >= Shape::columns) break;
      float2 c[Shape::batch];
#pragma unroll
      for (int row = 0; row < Shape::batch; ++row) {
        c[row] = *reinterpret_cast<const float2*>(&memory.terms[row][at]);
      }
#pragma unroll
      for (int row = 0; row < Shape::batch; ++row) {
        if (row >= count) break;
        sums[i][0] = arith::Add(sums[i][0], c[row].x);
        sums[i][1] = arith::Add(sums[i][1], c[row].y);
      }
    }
  }

  __device__ __forceinline__ void Run() {
    const int batches = (rows + Shape::batch - 1) / Shape::batch;
    Copy(0);
    Copy(1);
    LoadWeights();
    Expect(0);
    device::CopyAsyncWait<1>();
    __syncthreads();  // the weights
    device::ClusterWait();
    Send(0, 0.0f, StatisticPart(0));
    float statistic = Receive(0).y;
#pragma unroll 1
    for (int batch = 0; batch < batches; ++batch) {
      const int64_t row = begin + batch * Shape::batch + batch_row;
      Expect(batch + 1);
      float r = RowStatistic(statistic, static_cast<float>(s.length), s.eps);
      if (p.rstd_in != nullptr) r = row < s.rows ? p.rstd_in[row] : 0.0f;
      const float dot = MakeTerms(batch, r);
      __syncwarp();
      Copy(batch + 2);
      device::CopyAsyncWait<1>();  // the next batch is there
      __syncwarp();
      Send(batch + 1, dot, batch + 1 < batches ? StatisticPart(batch + 1) : 0.0f);
      __syncthreads();  // the batch's terms are whole
      const float2 sum = Receive(batch + 1);
      statistic = sum.y;
      StoreGradX(row, r, arith::Div(sum.x, static_cast<float>(s.length)));
      AddTerms(rows - batch * Shape::batch);
      __syncthreads();  // before the next batch's terms
    }
  }

  __device__ __forceinline__ void StorePartials(float* partials) {
#pragma unroll
    for (int i = 0; i < Shape::pairs; ++i) {
      const int at = (i * kClusterThreads + thread) * 2;
      if (at >= Shape::columns || GlobalColumn(at) >= s.length) break;
      *reinterpret_cast<float2*>(partials + GlobalColumn(at)) = make_float2(sums[i][0], sums[i][1]);
    }
  }
};

// Contiguous, 16-byte aligned, length a multiple of 8, grad_y of x's type. Grid: chunks times the
// blocks of a cluster.
template <typename X, Convention kConvention, typename Shape>
__global__ void __launch_bounds__(kClusterThreads)
    ChunkClusterKernel(const BackwardPointers p, const FoldPointers fold, const Scalars s) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ uint4 dynamic[];
  __shared__ float2 parts_of[2][Shape::batch][Shape::parts];
  __shared__ device::TransferBarrier barriers[2];
  if (threadIdx.x < 2) barriers[threadIdx.x].Init();
  __syncwarp();
  device::ClusterArrive();
  const int64_t chunk = static_cast<int>(blockIdx.x) / Shape::ranks;
  const int64_t begin = chunk * kFoldRows;
  ChunkBlock<X, kConvention, Shape> block{
      p,
      s,
      *reinterpret_cast<ChunkMemory<X, Shape>*>(dynamic),
      parts_of,
      barriers,
      static_cast<int>(blockIdx.x) % Shape::ranks,
      static_cast<int>(s.rows - begin < kFoldRows ? s.rows - begin : kFoldRows),
      begin};
  block.Run();
  block.StorePartials(fold.partials + chunk * s.length);
  // What another block sends to this one was waited for, so this block may leave.
  device::AllowLaunchBehind();
#endif
}

}  // namespace rlk::rms_norm
