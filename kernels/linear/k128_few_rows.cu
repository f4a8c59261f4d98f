// grad_weight of bf16-k128-v1 for few rows, at the rate at which it can be written, and grad_bias:
// one chunk, whose steps are `mma.sync`. Rows of a tile are outputs, columns are inputs.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"
#include "kernels/device/bulk_copy_sm90.cuh"
#include "kernels/device/tensor_core.cuh"
#include "kernels/linear/k128_few_rows.h"
#include "kernels/linear/k128_split.cuh"
#include "kernels/linear/launch.cuh"

namespace rlk::linear {
namespace {

constexpr int kStep = 16;             // rows of x of a step
constexpr int kOutputs = 16;          // of a tile
constexpr int kPitch = kOutputs + 8;  // of a staged row: no two rows of eight share a bank
constexpr int kGroupColumns = 32;
constexpr int kGroups = 7;  // of columns, of a warp
constexpr int kWarpColumns = kGroups * kGroupColumns;
constexpr int kWarpsMax = 12;
constexpr int kTiles = 2;        // of results, in shared memory
constexpr int kTilesAhead = 64;  // whose gradients are prefetched

// The gradients of a tile: their BF16 terms, rows beyond T zero, and what was split.
template <int kSteps, int kTerms>
struct Staged {
  static constexpr int kRows = kSteps * kStep;
  static constexpr int kVectors = kRows * kOutputs / 8;
  uint16_t terms[kTerms][kRows][kPitch];
  float exact[kTerms == 1 ? 1 : kRows][kOutputs];

  // Eight outputs of a row as they lie in memory.
  struct Vector {
    uint4 words[kTerms == 1 ? 1 : 2];
  };
  static __device__ __forceinline__ Vector Read(const Bf16BackwardWeight& problem, bool vector,
                                                int i, int64_t first) {
    Vector read = {};
    const int64_t t = i / (kOutputs / 8), n = first + i % (kOutputs / 8) * 8;
    if (i >= kVectors || t >= problem.shape.rows) return read;
    const GradientSource& grad = problem.grad;
    if (vector && n + 8 <= grad.outputs) {
      const GradientPlace place = PlaceOf(grad, t, n);
      if (place.from == nullptr) return read;
      const auto* const from = reinterpret_cast<const uint4*>(
          static_cast<const std::byte*>(place.from) + place.at * (kTerms == 1 ? 2 : 4));
      read.words[0] = __ldg(from);
      if constexpr (kTerms > 1) read.words[1] = __ldg(from + 1);
      return read;
    }
    float v[8];
    Gradient8(grad, false, t, n, grad.outputs, v);
    if constexpr (kTerms == 1) {
      read.words[0] = Pack8(v);
    } else {
      memcpy(read.words, v, sizeof(v));
    }
    return read;
  }
  __device__ __forceinline__ void Write(int i, const Vector& read) {
    const int t = i / (kOutputs / 8), n = i % (kOutputs / 8) * 8;
    if constexpr (kTerms == 1) {
      *reinterpret_cast<uint4*>(&terms[0][t][n]) = read.words[0];
    } else {
      float v[8];
      memcpy(v, read.words, sizeof(v));
#pragma unroll
      for (int term = 0; term < kTerms; ++term) {
        *reinterpret_cast<uint4*>(&terms[term][t][n]) = PartOf(v, PartOfTerm(term, kTerms));
      }
      reinterpret_cast<uint4*>(&exact[t][n])[0] = read.words[0];
      reinterpret_cast<uint4*>(&exact[t][n])[1] = read.words[1];
    }
  }
  // `ahead`: what Read gave for this thread.
  __device__ __forceinline__ void Put(const Bf16BackwardWeight& problem, bool vector, int64_t first,
                                      const Vector& ahead) {
    int i = static_cast<int>(threadIdx.x);
    if (i < kVectors) Write(i, ahead);
    for (i += static_cast<int>(blockDim.x); i < kVectors; i += static_cast<int>(blockDim.x)) {
      Write(i, Read(problem, vector, i, first));
    }
  }
  // P of one output.
  __device__ __forceinline__ float Sum(int n, int rows) const {
    float sum = 0.0f;
#pragma unroll 8
    for (int t = 0; t < rows; ++t) {
      sum = arith::Add(sum, kTerms == 1 ? arith::Bf16ToFloat(terms[0][t][n]) : exact[t][n]);
    }
    return sum;
  }
};

// A warp's columns of x as operand B of all steps. Columns 2 q and 2 q + 1 of the tiles j = 0 .. 3
// of a group are columns 8 q + 2 j and 8 q + 2 j + 1 of the group: what a lane has of four tiles
// are eight neighbours.
template <int kSteps>
struct Columns {
  uint32_t b[kSteps][kGroups][4][2];

  // column: the warp's first.
  __device__ __forceinline__ void Load(const Bf16BackwardWeight& problem, int64_t column) {
    const int lane = static_cast<int>(threadIdx.x) % 32, of_tile = lane / 4;
    const unsigned halves = of_tile % 2 == 0 ? 0x5410 : 0x7632;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int t = step * kStep + half * 8 + lane % 4 * 2;
          const int64_t k = column + group * kGroupColumns + of_tile / 2 * 8;
          const uint4 low = Row(problem, t, k), high = Row(problem, t + 1, k);
          b[step][group][0][half] = __byte_perm(low.x, high.x, halves);
          b[step][group][1][half] = __byte_perm(low.y, high.y, halves);
          b[step][group][2][half] = __byte_perm(low.z, high.z, halves);
          b[step][group][3][half] = __byte_perm(low.w, high.w, halves);
        }
      }
    }
  }
  static __device__ __forceinline__ uint4 Row(const Bf16BackwardWeight& problem, int64_t t,
                                              int64_t k) {
    if (t >= problem.shape.rows || k >= problem.shape.inputs) return make_uint4(0, 0, 0, 0);
    return __ldg(reinterpret_cast<const uint4*>(problem.x + t * problem.shape.inputs + k));
  }
};

// The gradients of `tiles` of a block's tiles, the first from output `begin` on, are on their way
// to the second-level cache, to stay there: a read that waits among writes takes longer than a
// tile.
__device__ __forceinline__ void PrefetchGradients(const Bf16BackwardWeight& problem, int64_t begin,
                                                  int tiles) {
  // Sixteen gradients of a row are one sector, or two.
  const int row_sectors = problem.grad.f32 ? 2 : 1, bytes = problem.grad.f32 ? 4 : 2;
  const int sectors = static_cast<int>(problem.shape.rows) * row_sectors;
  for (int i = static_cast<int>(threadIdx.x); i < tiles * sectors;
       i += static_cast<int>(blockDim.x)) {
    const int64_t n = begin + int64_t{i / sectors} * gridDim.x * kOutputs + i % row_sectors * 8;
    if (n >= problem.shape.outputs) continue;
    const GradientPlace place = PlaceOf(problem.grad, i % sectors / row_sectors, n);
    if (place.from == nullptr) continue;
    device::PrefetchToStay(static_cast<const std::byte*>(place.from) + place.at * bytes);
  }
}

// What a lane has of one output: eight neighbours from element `at` on.
__device__ __forceinline__ void WriteSums(const Bf16BackwardWeight& problem, int64_t at,
                                          float (&sum)[8]) {
  float4 start[2] = {};
  if (problem.weight_carry != nullptr) {
    const auto* const from = reinterpret_cast<const float4*>(problem.weight_carry + at);
    start[0] = from[0], start[1] = from[1];
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    sum[i] = arith::Canonical(arith::Add(reinterpret_cast<const float*>(start)[i], sum[i]));
  }
  for (float* const to : {problem.weight_acc, problem.grad_weight.dtype == DType::kF32
                                                  ? static_cast<float*>(problem.grad_weight.data)
                                                  : nullptr}) {
    if (to == nullptr) continue;
    reinterpret_cast<float4*>(to + at)[0] = make_float4(sum[0], sum[1], sum[2], sum[3]);
    reinterpret_cast<float4*>(to + at)[1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
  }
  if (problem.grad_weight.data != nullptr && problem.grad_weight.dtype == DType::kBF16) {
    *reinterpret_cast<uint4*>(static_cast<uint16_t*>(problem.grad_weight.data) + at) = Pack8(sum);
  }
}

// A tile in the columns of a warp, of which `count` outputs from `first` on are there. `row`: the
// lane's of the first step. kPlain: no carry, and BF16 alone is written, to rows of `tile` that are
// `pitch` bytes apart; the sum is then the chunk itself, which is never -0.
template <int kSteps, int kTerms, bool kPlain>
__device__ __forceinline__ void MultiplyTile(const Bf16BackwardWeight& problem, const uint16_t* row,
                                             const Columns<kSteps>& columns, int64_t first,
                                             int count, int64_t column, std::byte* tile,
                                             int pitch) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t inputs = problem.shape.inputs;
  const int64_t k = column + lane % 4 * 8;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    float d[4][4] = {};
#pragma unroll
    for (int term = 0; term < kTerms; ++term) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        uint32_t a[4];
        device::LoadTransposed(a, row + (term * kSteps + step) * (kStep * kPitch));
#pragma unroll
        for (int j = 0; j < 4; ++j) device::MmaStep(d[j], a, columns.b[step][group][j]);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int n = lane / 4 + half * 8;
      float sum[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[i] = d[i / 2][half * 2 + i % 2];
      if constexpr (kPlain) {
        *reinterpret_cast<uint4*>(tile + n * pitch + (group * kGroupColumns + lane % 4 * 8) * 2) =
            Pack8(sum);
      } else if (n < count && k + group * kGroupColumns < inputs) {
        WriteSums(problem, (first + n) * inputs + k + group * kGroupColumns, sum);
      }
    }
  }
}

// A block keeps its columns of x and takes a tile of kOutputs outputs, then that which is gridDim.x
// blocks further on: what the blocks write at a time is one region. Plain results go to shared
// memory and from there row by row: the nearer to each other in time a row's bytes are written, the
// faster the memory takes them.
template <int kSteps, int kTerms, bool kPlain>
__global__ void __launch_bounds__(32 * kWarpsMax, 1)
    FewRowsKernel(Bf16BackwardWeight problem, bool vector, bool bias, int pitch) {
  using Stage = Staged<kSteps, kTerms>;
  extern __shared__ __align__(128) std::byte tiles[];
  __shared__ __align__(16) Stage stage;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int threads = static_cast<int>(blockDim.x);
  const int64_t outputs = problem.shape.outputs, inputs = problem.shape.inputs;
  const int64_t block_column = int64_t{blockIdx.y} * (threads / 32) * kWarpColumns;
  const int64_t column = block_column + warp * kWarpColumns;
  const int row_bytes =
      static_cast<int>(min(int64_t{threads / 32 * kWarpColumns}, inputs - block_column)) * 2;
  const int64_t hop = int64_t{gridDim.x} * kOutputs;
  int64_t first = int64_t{blockIdx.x} * kOutputs;
  PrefetchGradients(problem, first, kTilesAhead);
  Columns<kSteps> columns;
  columns.Load(problem, column);
  // Of the tiles of eight rows of a step: outputs 0 .. 7 and 8 .. 15, then the rows behind.
  const uint16_t* const row = &stage.terms[0][lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8];
  typename Stage::Vector ahead = Stage::Read(problem, vector, thread, first);
  for (int turn = 0; first < outputs; first += hop, turn = turn + 1 == kTiles ? 0 : turn + 1) {
    if (kPlain && thread < kOutputs) device::BulkStoreWait<kTiles - 1>();
    stage.Put(problem, vector, first, ahead);
    __syncthreads();
    PrefetchGradients(problem, first + kTilesAhead * hop, 1);
    if (first + hop < outputs) ahead = Stage::Read(problem, vector, thread, first + hop);
    const int count = static_cast<int>(min(int64_t{kOutputs}, outputs - first));
    const int of_bias = thread - (threads - 32);
    if (bias && blockIdx.y == 0 && of_bias >= 0 && of_bias < count) {
      const int64_t n = first + of_bias;
      const float start = problem.bias_carry != nullptr ? problem.bias_carry[n] : 0.0f;
      const float sum = stage.Sum(of_bias, static_cast<int>(problem.shape.rows));
      WriteBias(problem, n, arith::Add(start, sum));
    }
    std::byte* const tile = tiles + turn * kOutputs * pitch;
    MultiplyTile<kSteps, kTerms, kPlain>(problem, row, columns, first, count, column,
                                         tile + warp * kWarpColumns * 2, pitch);
    if (kPlain) device::FenceBeforeBulkStore();
    __syncthreads();
    if (kPlain && thread < kOutputs) {
      if (thread < count) {
        device::BulkStore(static_cast<uint16_t*>(problem.grad_weight.data) +
                              (first + thread) * inputs + block_column,
                          tile + thread * pitch, row_bytes);
      }
      device::BulkStoreCommit();
    }
  }
  if (kPlain && thread < kOutputs) device::BulkStoreWait<0>();
}

using Kernel = void (*)(Bf16BackwardWeight, bool, bool, int);

template <int kSteps, int kTerms>
absl::Status LaunchSteps(const Bf16BackwardWeight& problem, cudaStream_t stream) {
  const Shape& shape = problem.shape;
  const bool plain = problem.weight_carry == nullptr && problem.weight_acc == nullptr &&
                     problem.grad_weight.dtype == DType::kBF16;
  const Kernel kernel =
      plain ? &FewRowsKernel<kSteps, kTerms, true> : &FewRowsKernel<kSteps, kTerms, false>;
  const int64_t warps = (shape.inputs + kWarpColumns - 1) / kWarpColumns;
  const int64_t columns = (warps + kWarpsMax - 1) / kWarpsMax;
  const auto block_warps = static_cast<int>((warps + columns - 1) / columns);
  // Of rows of a tile: lanes that write together have other banks.
  const int pitch = (block_warps * kWarpColumns * 2 + 127) / 128 * 128 + 64;
  const int shared_bytes = plain ? kTiles * kOutputs * pitch : 0;
  RLK_CUDA_RETURN_IF_ERROR(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                shared_bytes));
  int resident = 0;
  RLK_CUDA_RETURN_IF_ERROR(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &resident, reinterpret_cast<const void*>(kernel), 32 * block_warps, shared_bytes));
  RLK_ASSIGN_OR_RETURN(const int multiprocessors, MultiprocessorCount());
  const int64_t blocks =
      std::min((shape.outputs + kOutputs - 1) / kOutputs,
               std::max<int64_t>(1, int64_t{multiprocessors} * resident / columns));
  const bool bias = problem.grad_bias.data != nullptr || problem.bias_acc != nullptr;
  return LaunchShared(kernel, dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(columns)),
                      static_cast<unsigned>(32 * block_warps), shared_bytes, stream, problem,
                      VectorGradient(problem.grad), bias, pitch);
}

}  // namespace

bool K128FewRows(const Bf16BackwardWeight& problem) {
  const int64_t rows_max = problem.grad.f32 ? 2 * kStep : kStep;
  // What a grid's second dimension has room for.
  constexpr int64_t kInputsMax = int64_t{65535} * kWarpColumns;
  return problem.shape.rows <= rows_max && problem.shape.inputs <= kInputsMax;
}

absl::Status LaunchK128FewRowsWeight(const Bf16BackwardWeight& problem, StreamRef stream) {
  const cudaStream_t on = cuda::CudaStream(stream);
  if (!problem.grad.f32) return LaunchSteps<1, 1>(problem, on);
  return problem.shape.rows <= kStep ? LaunchSteps<1, kTermsMax>(problem, on)
                                     : LaunchSteps<2, kTermsMax>(problem, on);
}

}  // namespace rlk::linear
