// grad_weight and grad_x for many rows.
//
//   grad_weight: m = output n, r = row t; one chain.
//   grad_x:      m = row t, r = output n; chains of 64, folded ascending: by the block that has the
//                tile, or, where there are fewer tiles than multiprocessors, chunks in parallel
//                into partial sums, which a second kernel folds.
#include <algorithm>

#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"
#include "kernels/linear/backward_tile.cuh"
#include "kernels/linear/backward_tile.h"
#include "kernels/linear/launch.cuh"

namespace rlk::linear {
namespace {

constexpr int kChunk = 64;
static_assert(kChunk % kTileDepth == 0);

using WeightPlan = TilePlan<4, 16>;
using InputPlan = TilePlan<2, 8>;

__device__ __forceinline__ void Write4(const Result& result, int64_t at, const float* v) {
  if (result.data == nullptr) return;
  if (result.dtype == DType::kF32) {
    *reinterpret_cast<float4*>(static_cast<float*>(result.data) + at) =
        make_float4(v[0], v[1], v[2], v[3]);
  } else {
    *reinterpret_cast<uint2*>(static_cast<uint16_t*>(result.data) + at) = make_uint2(
        device::PackPair<device::Bf16>(v[0], v[1]), device::PackPair<device::Bf16>(v[2], v[3]));
  }
}

// Blocks are numbered so that those which run together share both operands: column tiles of one
// band of outputs first.
template <typename T>
__global__ void __launch_bounds__(WeightPlan::kThreads, 1)
    WeightTileKernel(TiledBackwardWeight problem, bool vector) {
  __shared__ __align__(16) Tile<WeightPlan> tiles[2];
  const Place<WeightPlan> place;
  const int64_t n0 = int64_t{blockIdx.y} * WeightPlan::kRows;
  const int64_t k0 = int64_t{blockIdx.x} * WeightPlan::kColumns;
  const Shape& shape = problem.shape;
  ThreadSums<WeightPlan> sum = {};
  const auto each = [&](const auto& visit) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int j = 0; j < WeightPlan::kThreadColumns; j += 4) {
        const int64_t n = n0 + place.Row(i), k = k0 + place.Column(j);
        if (n < shape.outputs && k < shape.inputs) visit(n * shape.inputs + k, &sum[i][j]);
      }
    }
  };
  if (problem.carry != nullptr) {
    each([&](int64_t at, float* v) {
      const float4 carry = *reinterpret_cast<const float4*>(problem.carry + at);
      v[0] = carry.x, v[1] = carry.y, v[2] = carry.z, v[3] = carry.w;
    });
  }
  ChannelLoader<WeightPlan> a(problem.grad, vector, n0);
  MatrixLoader<WeightPlan, T> b(problem.x.data, shape.inputs, k0);
  AddTerms(a, b, 0, shape.rows, tiles, place, sum, [](int64_t) {});
  each([&](int64_t at, float* v) {
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = arith::Canonical(v[i]);
    if (problem.accumulator != nullptr) Write4({DType::kF32, problem.accumulator}, at, v);
    Write4(problem.grad_weight, at, v);
  });
}

// One block has all chunks of a tile. The totals are in shared memory, [64][kThreads], so that
// three blocks have the registers they need.
template <typename P>
constexpr int kTotalBytes = 64 * P::kThreads* static_cast<int>(sizeof(float));

template <typename P, typename T>
__global__ void __launch_bounds__(P::kThreads, 3)
    InputTileKernel(TiledBackwardInput problem, bool vector) {
  __shared__ __align__(16) Tile<P> tiles[2];
  extern __shared__ float totals[];
  float* const total = totals + threadIdx.x;
  const Place<P> place;
  const int64_t t0 = int64_t{blockIdx.y} * P::kRows, k0 = int64_t{blockIdx.x} * P::kColumns;
  const Shape& shape = problem.shape;
  ThreadSums<P> sum = {};
  RowLoader<P> a(problem.grad, vector, t0, shape.rows);
  MatrixLoader<P, T> b(problem.weight.data, shape.inputs, k0);
  AddTerms(a, b, 0, shape.outputs, tiles, place, sum, [&](int64_t done) {
    if (done % kChunk != 0 && done != shape.outputs) return;
    const bool first = done <= kChunk;
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      float& v = sum[i / 8][i % 8];
      float& to = total[i * P::kThreads];
      to = first ? v : arith::Add(to, v);
      v = 0.0f;
    }
  });
#pragma unroll 1
  for (int i = 0; i < 64; ++i) {
    const int64_t t = t0 + place.Row(i / 8), k = k0 + place.Column(i % 8);
    if (t < shape.rows && k < shape.inputs) {
      WriteGradX(problem, t * shape.inputs + k, total[i * P::kThreads]);
    }
  }
}

// One block has one chunk of a tile. partial: [chunks of the pass][T][K].
template <typename P, typename T>
__global__ void __launch_bounds__(P::kThreads)
    InputPartialKernel(TiledBackwardInput problem, bool vector, int64_t first_chunk,
                       float* partial) {
  __shared__ __align__(16) Tile<P> tiles[2];
  const Place<P> place;
  const int64_t t0 = int64_t{blockIdx.y} * P::kRows, k0 = int64_t{blockIdx.x} * P::kColumns;
  const Shape& shape = problem.shape;
  const int64_t begin = (first_chunk + blockIdx.z) * kChunk;
  ThreadSums<P> sum = {};
  RowLoader<P> a(problem.grad, vector, t0, shape.rows);
  MatrixLoader<P, T> b(problem.weight.data, shape.inputs, k0);
  AddTerms(a, b, begin, min(begin + kChunk, shape.outputs), tiles, place, sum, [](int64_t) {});
  float* const to = partial + int64_t{blockIdx.z} * shape.rows * shape.inputs;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
#pragma unroll
    for (int j = 0; j < 8; j += 4) {
      const int64_t t = t0 + place.Row(i), k = k0 + place.Column(j);
      if (t < shape.rows && k < shape.inputs) {
        Write4({DType::kF32, to}, t * shape.inputs + k, &sum[i][j]);
      }
    }
  }
}

constexpr int kFoldThreads = 128;
constexpr int kFoldAhead = 8;

// Adds the partials of a pass to the totals of those before it; four elements a thread.
__global__ void __launch_bounds__(kFoldThreads)
    FoldPassKernel(TiledBackwardInput problem, const float* partial, int64_t chunks, bool first,
                   bool last, float* total) {
  const int64_t elements = problem.shape.rows * problem.shape.inputs;
  const int64_t at = (int64_t{blockIdx.x} * kFoldThreads + threadIdx.x) * 4;
  if (at >= elements) return;
  float v[4] = {};
  const auto load = [&](int64_t chunk) {
    return __ldcs(reinterpret_cast<const float4*>(partial + chunk * elements + at));
  };
  const auto add = [&](const float4& x) {
    v[0] = arith::Add(v[0], x.x), v[1] = arith::Add(v[1], x.y);
    v[2] = arith::Add(v[2], x.z), v[3] = arith::Add(v[3], x.w);
  };
  const float4 begin = first ? load(0) : *reinterpret_cast<const float4*>(total + at);
  v[0] = begin.x, v[1] = begin.y, v[2] = begin.z, v[3] = begin.w;
  int64_t c = first ? 1 : 0;
  for (; c + kFoldAhead <= chunks; c += kFoldAhead) {
    float4 next[kFoldAhead];
#pragma unroll
    for (int i = 0; i < kFoldAhead; ++i) next[i] = load(c + i);
#pragma unroll
    for (int i = 0; i < kFoldAhead; ++i) add(next[i]);
  }
  for (; c < chunks; ++c) add(load(c));
  if (!last) {
    *reinterpret_cast<float4*>(total + at) = make_float4(v[0], v[1], v[2], v[3]);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) WriteGradX(problem, at + i, v[i]);
}

unsigned TilesOf(int64_t count, int64_t tile) {
  return static_cast<unsigned>((count + tile - 1) / tile);
}

// Of the partial sums of a pass; a pass of few chunks would leave multiprocessors idle.
constexpr int64_t kPartialBytes = int64_t{96} << 20;

int64_t Chunks(const Shape& shape) { return (shape.outputs + kChunk - 1) / kChunk; }

int64_t PassChunks(const Shape& shape) {
  const int64_t bytes = shape.rows * shape.inputs * static_cast<int64_t>(sizeof(float));
  return std::min(Chunks(shape), std::max<int64_t>(1, kPartialBytes / bytes));
}

int64_t InputTiles(const Shape& shape) {
  return int64_t{TilesOf(shape.inputs, InputPlan::kColumns)} *
         TilesOf(shape.rows, InputPlan::kRows);
}

// Whether chunks run in parallel: where the tiles alone would not fill a large GPU. The bits are
// the same.
bool InPasses(const Shape& shape) { return InputTiles(shape) < 264; }

template <typename P, typename T>
absl::Status LaunchPasses(const TiledBackwardInput& problem, bool vector, float* workspace,
                          cudaStream_t stream) {
  const Shape& shape = problem.shape;
  const int64_t chunks = Chunks(shape), pass = PassChunks(shape);
  float* const total = workspace;
  float* const partial = workspace + shape.rows * shape.inputs;
  const dim3 tiles(TilesOf(shape.inputs, P::kColumns), TilesOf(shape.rows, P::kRows));
  RLK_ASSIGN_OR_RETURN(const unsigned fold_blocks,
                       cuda::GridBlocks(shape.rows * shape.inputs, 4 * kFoldThreads));
  for (int64_t first = 0; first < chunks; first += pass) {
    const int64_t count = std::min(pass, chunks - first);
    RLK_RETURN_IF_ERROR(LaunchShared(&InputPartialKernel<P, T>,
                                     dim3(tiles.x, tiles.y, static_cast<unsigned>(count)),
                                     P::kThreads, 0, stream, problem, vector, first, partial));
    RLK_RETURN_IF_ERROR(cuda::Launch(&FoldPassKernel, fold_blocks, kFoldThreads, stream, problem,
                                     static_cast<const float*>(partial), count, first == 0,
                                     first + count == chunks, total));
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status LaunchInput(const TiledBackwardInput& problem, void* workspace, cudaStream_t stream) {
  const Shape& shape = problem.shape;
  const bool vector = VectorGradient(problem.grad);
  if (InPasses(shape)) {
    auto* const floats = static_cast<float*>(workspace);
    return shape.rows <= 64 ? LaunchPasses<TilePlan<2, 8>, T>(problem, vector, floats, stream)
                            : LaunchPasses<TilePlan<4, 8>, T>(problem, vector, floats, stream);
  }
  using P = InputPlan;
  const dim3 grid(TilesOf(shape.inputs, P::kColumns), TilesOf(shape.rows, P::kRows));
  return LaunchShared(&InputTileKernel<P, T>, grid, P::kThreads, kTotalBytes<P>, stream, problem,
                      vector);
}

}  // namespace

absl::Status LaunchTiledBackwardWeight(const TiledBackwardWeight& problem, StreamRef stream) {
  const auto kernel =
      problem.x.dtype == DType::kF32 ? &WeightTileKernel<float> : &WeightTileKernel<uint16_t>;
  const dim3 grid(TilesOf(problem.shape.inputs, WeightPlan::kColumns),
                  TilesOf(problem.shape.outputs, WeightPlan::kRows));
  return LaunchShared(kernel, grid, WeightPlan::kThreads, 0, cuda::CudaStream(stream), problem,
                      VectorGradient(problem.grad));
}

int64_t TiledBackwardInputBytes(const Shape& shape) {
  if (!InPasses(shape)) return 0;
  return (PassChunks(shape) + 1) * shape.rows * shape.inputs * static_cast<int64_t>(sizeof(float));
}

absl::Status LaunchTiledBackwardInput(const TiledBackwardInput& problem, void* workspace,
                                      StreamRef stream) {
  return problem.weight.dtype == DType::kF32
             ? LaunchInput<float>(problem, workspace, cuda::CudaStream(stream))
             : LaunchInput<uint16_t>(problem, workspace, cuda::CudaStream(stream));
}

}  // namespace rlk::linear
