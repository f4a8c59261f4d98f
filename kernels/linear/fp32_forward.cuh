// Kernels of h3-det-linear-v1.
//
// Accumulator l of an output is lane l of a warp: a lane loads 16 bytes, which are its next chunk,
// so a warp's loads of a row are 512 consecutive bytes. A warp handles kRows x kOutputs outputs at
// once. Which kernel runs depends on the shape alone; all of them give the same bits.
#pragma once

#include <cstdint>

#include "kernels/device/warp.cuh"
#include "kernels/linear/activation.cuh"
#include "kernels/linear/problem.h"

namespace rlk::linear {

// A chunk of each of 32 accumulators: what a warp multiplies at a time.
inline constexpr int kWarpBlock = static_cast<int>(kAccumulators * kChunk);

__device__ __forceinline__ float MultiplyChunk(const float4& x, const float4& w, float a) {
  a = __fmaf_rn(x.x, w.x, a);
  a = __fmaf_rn(x.y, w.y, a);
  a = __fmaf_rn(x.z, w.z, a);
  return __fmaf_rn(x.w, w.w, a);
}

// Weights are read once: they need not stay in the first cache, where x does.
__device__ __forceinline__ float4 LoadOnce(const float* p) {
  float4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(p));
  return v;
}

// x: coherent, so not before a wait, and kept in the first cache.
__device__ __forceinline__ float4 LoadShared(const float* p) {
  float4 v;
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(p)
               : "memory");
  return v;
}

// The totals of kCount accumulators, kCount a power of two up to 32: the xor tree of the contract,
// with half of the values handed over at each level. Returns the total whose index is `index`,
// and is written by this lane if `writes`.
template <int kCount>
__device__ __forceinline__ float FoldTotals(float (&a)[kCount], int lane, int& index,
                                            bool& writes) {
  index = 0;
  int live = kCount;
  int held = 0;  // the lane's bits that chose no value
#pragma unroll
  for (int s = 16; s > 0; s /= 2) {
    const bool upper = (lane & s) != 0;
    if (live > 1) {
      live /= 2;
#pragma unroll
      for (int i = 0; i < kCount / 2; ++i) {
        if (i >= live) break;
        const float mine = upper ? a[i + live] : a[i];
        const float theirs = upper ? a[i] : a[i + live];
        a[i] = __fadd_rn(mine, __shfl_xor_sync(device::kWholeWarp, theirs, s));
      }
      index += upper ? live : 0;
    } else {
      a[0] = __fadd_rn(a[0], __shfl_xor_sync(device::kWholeWarp, a[0], s));
      held |= lane & s;
    }
  }
  writes = held == 0;
  return a[0];
}

__device__ __forceinline__ void StoreOutput(const Fp32Forward& p, int64_t t, int64_t n,
                                            float total) {
  if (t >= p.shape.rows || n >= p.shape.outputs) return;
  const float v = __fadd_rn(total, p.bias != nullptr ? __ldg(p.bias + n) : 0.0f);
  const int64_t at = t * p.shape.outputs + n;
  if (p.pre != nullptr) p.pre[at] = arith::Canonical(v);
  if (p.y != nullptr) p.y[at] = arith::Canonical(DeviceActivate(p.activation, v));
}

// The launch before this one on the stream has ended and its writes are seen. Nothing where the
// launch did not ask to begin early.
__device__ __forceinline__ void WaitForPredecessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The same, but not before `loaded` is there: the assembler would move the loads behind the wait.
// The condition always holds (no grid of its callers has a third dimension), and only the hardware
// knows it.
__device__ __forceinline__ void WaitForPredecessor(uint32_t loaded) {
  if ((loaded | 1u) != gridDim.z - 1u) WaitForPredecessor();
}
__device__ __forceinline__ void AllowSuccessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// kDepth blocks of kOutputs rows of weights and of kRows rows of x, on their way. Two of these take
// turns: while one is multiplied, the other's loads are in flight. x is loaded as early as the
// weights: a load that hits the first cache still comes back behind the misses before it.
template <int kRows, int kOutputs, int kDepth>
struct Operands {
  float4 w[kDepth][kOutputs];
  float4 x[kDepth][kRows];

  // Blocks from `block` on, of rows whose first chunk of this lane is at rows[c].
  __device__ __forceinline__ void LoadWeights(const float* const (&rows)[kOutputs], int64_t block,
                                              int64_t count) {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
#pragma unroll
      for (int c = 0; c < kOutputs; ++c) {
        if (block + d < count) w[d][c] = LoadOnce(rows[c] + (block + d) * kWarpBlock);
      }
    }
  }
  // x may be what the predecessor wrote: it does not go through the read-only path.
  __device__ __forceinline__ void LoadX(const float* const (&rows)[kRows], int64_t block,
                                        int64_t count) {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (block + d < count) x[d][r] = LoadShared(rows[r] + (block + d) * kWarpBlock);
      }
    }
  }
  // Bits of all weights that were loaded: whoever needs them waits for the loads.
  __device__ __forceinline__ uint32_t WeightBits() const {
    uint32_t bits = 0;
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
#pragma unroll
      for (int c = 0; c < kOutputs; ++c) bits ^= __float_as_uint(w[d][c].x);
    }
    return bits;
  }
  __device__ __forceinline__ void Multiply(int64_t block, int64_t count,
                                           float (&a)[kRows * kOutputs]) const {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      if (block + d >= count) break;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int c = 0; c < kOutputs; ++c) {
          a[r * kOutputs + c] = MultiplyChunk(x[d][r], w[d][c], a[r * kOutputs + c]);
        }
      }
    }
  }
};

// The first chunk of this lane of each output; beyond the last one, of that one.
template <int kOutputs>
__device__ __forceinline__ void WeightRows(const Fp32Forward& p, int64_t first, int lane,
                                           const float* (&rows)[kOutputs]) {
#pragma unroll
  for (int c = 0; c < kOutputs; ++c) {
    const int64_t n = first + c < p.shape.outputs ? first + c : p.shape.outputs - 1;
    rows[c] = p.weight + n * p.shape.inputs + lane * kChunk;
  }
}

// Few rows: the weights stream past, each read once. One warp a block.
template <int kRows, int kOutputs, int kDepth>
__global__ void __launch_bounds__(32) Fp32ForwardRowsKernel(const Fp32Forward p) {
  AllowSuccessor();
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kOutputs;
  const int64_t row = static_cast<int64_t>(blockIdx.y) * kRows;
  const int64_t inputs = p.shape.inputs;
  const int64_t blocks = inputs / kWarpBlock;
  const float* rows[kOutputs];
  WeightRows(p, first, lane, rows);
  Operands<kRows, kOutputs, kDepth> even = {}, odd = {};
  even.LoadWeights(rows, 0, blocks);
  odd.LoadWeights(rows, kDepth, blocks);
  WaitForPredecessor(even.WeightBits() ^ odd.WeightBits());
  const float* x[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t t = row + r < p.shape.rows ? row + r : p.shape.rows - 1;
    x[r] = p.x + t * inputs + lane * kChunk;
  }
  float a[kRows * kOutputs] = {};
  even.LoadX(x, 0, blocks);
  odd.LoadX(x, kDepth, blocks);
  for (int64_t b = 0; b < blocks; b += 2 * kDepth) {
    even.Multiply(b, blocks, a);
    even.LoadWeights(rows, b + 2 * kDepth, blocks);
    even.LoadX(x, b + 2 * kDepth, blocks);
    odd.Multiply(b + kDepth, blocks, a);
    odd.LoadWeights(rows, b + 3 * kDepth, blocks);
    odd.LoadX(x, b + 3 * kDepth, blocks);
  }
  // The last, short block: lanes without a chunk keep their accumulators.
  if (blocks * kWarpBlock + lane * kChunk < inputs) {
    Operands<kRows, kOutputs, 1> tail;
    tail.LoadWeights(rows, blocks, blocks + 1);
    tail.LoadX(x, blocks, blocks + 1);
    tail.Multiply(blocks, blocks + 1, a);
  }
  __syncwarp();
  int index;
  bool writes;
  const float total = FoldTotals<kRows * kOutputs>(a, lane, index, writes);
  if (writes) StoreOutput(p, row + index / kOutputs, first + index % kOutputs, total);
}

__device__ __forceinline__ void CopyAsync(float4* to, const float* from) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from));
}

// Two to eight rows: what a warp reads of x outweighs the weights, so x comes to shared memory,
// once a block, in kXParts parts that are waited for in turn. A warp has kOutputs outputs.
inline constexpr int kXParts = 4;
// Warps of a block at most: what the registers hold.
inline constexpr int kSharedWarps = 12;

// Begins the copies of x, of `part` blocks a part; one group of copies a part.
template <int kRows>
__device__ __forceinline__ void CopyParts(const Fp32Forward& p, int64_t part, float* shared_x) {
  const int64_t inputs = p.shape.inputs;
  const int threads = static_cast<int>(blockDim.y) * 32;
  const int thread = static_cast<int>(threadIdx.y) * 32 + static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (int i = 0; i < kXParts; ++i) {
    const int64_t begin = min(i * part * kWarpBlock, inputs);
    const int64_t end = i + 1 == kXParts ? inputs : min((i + 1) * part * kWarpBlock, inputs);
    const auto chunks = static_cast<int>((end - begin) / kChunk);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t t = r < p.shape.rows ? r : p.shape.rows - 1;
      for (int c = thread; c < chunks; c += threads) {
        const int64_t k = begin + c * kChunk;
        CopyAsync(reinterpret_cast<float4*>(shared_x + r * inputs + k), p.x + t * inputs + k);
      }
    }
    asm volatile("cp.async.commit_group;");
  }
}

// Until part i is there, for the whole block; i is known when this is compiled.
__device__ __forceinline__ void AwaitPart(int i) {
  if (i == 0) asm volatile("cp.async.wait_group %0;" ::"n"(kXParts - 1) : "memory");
  if (i == 1) asm volatile("cp.async.wait_group %0;" ::"n"(kXParts - 2) : "memory");
  if (i == 2) asm volatile("cp.async.wait_group %0;" ::"n"(kXParts - 3) : "memory");
  if (i == 3) asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
}

// Bits of all of them: whoever needs these waits for the loads.
template <int kOutputs, int kDepth>
__device__ __forceinline__ uint32_t BitsOf(const float4 (&w)[kDepth][kOutputs]) {
  uint32_t bits = 0;
#pragma unroll
  for (int d = 0; d < kDepth; ++d) {
#pragma unroll
    for (int c = 0; c < kOutputs; ++c) bits ^= __float_as_uint(w[d][c].x);
  }
  return bits;
}

template <int kRows, int kOutputs, int kDepth>
__global__ void __launch_bounds__(kSharedWarps * 32) Fp32ForwardSharedKernel(const Fp32Forward p) {
  extern __shared__ __align__(16) float shared_x[];  // [kRows][K]
  AllowSuccessor();
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y) * kOutputs;
  const int64_t inputs = p.shape.inputs;
  const int64_t blocks = inputs / kWarpBlock;
  const float* rows[kOutputs];
  WeightRows(p, first, lane, rows);
  float4 even[kDepth][kOutputs] = {}, odd[kDepth][kOutputs] = {};
  const auto load = [&](float4(&w)[kDepth][kOutputs], int64_t block) {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
#pragma unroll
      for (int c = 0; c < kOutputs; ++c) {
        if (block + d < blocks) w[d][c] = LoadOnce(rows[c] + (block + d) * kWarpBlock);
      }
    }
  };
  load(even, 0);
  load(odd, kDepth);
  WaitForPredecessor(BitsOf(even) ^ BitsOf(odd));
  // Parts end where both buffers have been multiplied; the last one has the short block too.
  constexpr int64_t kTurn = 2 * kDepth;
  const int64_t part = (blocks / kTurn + kXParts - 1) / kXParts * kTurn;  // in blocks
  CopyParts<kRows>(p, part, shared_x);
  const float* const x = shared_x + lane * kChunk;
  float a[kRows * kOutputs] = {};
  const auto multiply = [&](int64_t at, const float4(&w)[kOutputs]) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float4 v = *reinterpret_cast<const float4*>(x + r * inputs + at);
#pragma unroll
      for (int c = 0; c < kOutputs; ++c) {
        a[r * kOutputs + c] = MultiplyChunk(v, w[c], a[r * kOutputs + c]);
      }
    }
  };
  const auto turn = [&](float4(&w)[kDepth][kOutputs], int64_t block) {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      if (block + d < blocks) multiply((block + d) * kWarpBlock, w[d]);
    }
    load(w, block + kTurn);
  };
#pragma unroll
  for (int i = 0; i < kXParts; ++i) {
    AwaitPart(i);
    const int64_t end = i + 1 == kXParts ? blocks : min((i + 1) * part, blocks);
    for (int64_t b = min(i * part, blocks); b < end; b += kTurn) {
      turn(even, b);
      turn(odd, b + kDepth);
    }
  }
  // The last, short block: lanes without a chunk keep their accumulators.
  if (blocks * kWarpBlock + lane * kChunk < inputs) {
    float4 w[kOutputs];
#pragma unroll
    for (int c = 0; c < kOutputs; ++c) w[c] = LoadOnce(rows[c] + blocks * kWarpBlock);
    multiply(blocks * kWarpBlock, w);
  }
  __syncwarp();
  int index;
  bool writes;
  const float total = FoldTotals<kRows * kOutputs>(a, lane, index, writes);
  if (writes) StoreOutput(p, index / kOutputs, first + index % kOutputs, total);
}

// Many rows: a block multiplies 32 rows by 16 outputs from shared memory, 8 x 8 outputs a warp.
inline constexpr int kTileRows = 32, kTileOutputs = 16, kTileWarps = 8;
inline constexpr int kWarpRows = 8, kWarpOutputs = 8;

struct TileStage {
  float4 x[kTileRows][32];
  float4 w[kTileOutputs][32];
};

// Block b of the tile's operands; chunks beyond the rows are left as they are.
__device__ __forceinline__ void LoadStage(const Fp32Forward& p, int64_t row, int64_t output,
                                          int64_t b, TileStage& stage) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t k = b * kWarpBlock + lane * kChunk;
  if (k < p.shape.inputs) {
#pragma unroll
    for (int r = warp; r < kTileRows; r += kTileWarps) {
      const int64_t t = row + r < p.shape.rows ? row + r : p.shape.rows - 1;
      CopyAsync(&stage.x[r][lane], p.x + t * p.shape.inputs + k);
    }
#pragma unroll
    for (int c = warp; c < kTileOutputs; c += kTileWarps) {
      const int64_t n = output + c < p.shape.outputs ? output + c : p.shape.outputs - 1;
      CopyAsync(&stage.w[c][lane], p.weight + n * p.shape.inputs + k);
    }
  }
  asm volatile("cp.async.commit_group;");
}

__global__ void __launch_bounds__(kTileWarps * 32, 2) Fp32ForwardTileKernel(const Fp32Forward p) {
  __shared__ TileStage stages[2];
  WaitForPredecessor();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kTileRows;
  const int64_t output = (static_cast<int64_t>(blockIdx.z) * gridDim.y + blockIdx.y) * kTileOutputs;
  if (output >= p.shape.outputs) return;
  const int warp_row = warp / 2 * kWarpRows, warp_output = warp % 2 * kWarpOutputs;
  const int64_t blocks = (p.shape.inputs + kWarpBlock - 1) / kWarpBlock;
  float a[2][kWarpRows / 2 * kWarpOutputs] = {};
  LoadStage(p, row, output, 0, stages[0]);
  for (int64_t b = 0; b < blocks; ++b) {
    if (b + 1 < blocks) {
      LoadStage(p, row, output, b + 1, stages[(b + 1) % 2]);
      asm volatile("cp.async.wait_group 1;");
    } else {
      asm volatile("cp.async.wait_group 0;");
    }
    __syncthreads();
    const TileStage& stage = stages[b % 2];
    if (b * kWarpBlock + lane * kChunk < p.shape.inputs) {
      float4 w[kWarpOutputs];
#pragma unroll
      for (int c = 0; c < kWarpOutputs; ++c) w[c] = stage.w[warp_output + c][lane];
#pragma unroll
      for (int r = 0; r < kWarpRows; ++r) {
        const float4 x = stage.x[warp_row + r][lane];
#pragma unroll
        for (int c = 0; c < kWarpOutputs; ++c) {
          float& sum = a[r / 4][r % 4 * kWarpOutputs + c];
          sum = MultiplyChunk(x, w[c], sum);
        }
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    int index;
    bool writes;
    const float total = FoldTotals<32>(a[half], lane, index, writes);
    StoreOutput(p, row + warp_row + half * 4 + index / kWarpOutputs,
                output + warp_output + index % kWarpOutputs, total);
  }
}

}  // namespace rlk::linear
