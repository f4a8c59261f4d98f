// grad_x for few rows: one pass over the weights makes the partial sum of every chunk, a second
// kernel folds the partials in order.
#include <algorithm>
#include <type_traits>

#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"
#include "kernels/device/async_copy.cuh"
#include "kernels/linear/backward_tile.h"
#include "kernels/linear/bf16_gradient.cuh"
#include "kernels/linear/launch.cuh"

namespace rlk::linear {
namespace {

constexpr int kChunk = 64;   // outputs of a partial sum
constexpr int kRowsMax = 8;  // of a pass
// Above this many rows a tiled product is faster.
constexpr int64_t kTiledRows = 48;
constexpr unsigned kThreadsMax = 384;

// Columns of a thread: with many rows fewer, so that two blocks have the registers they need.
template <int kRows>
constexpr int kWidth = kRows > 4 ? 4 : 8;

// Rows of weights that are read together.
template <int kRows>
constexpr int kReadAhead = kRows == 1 ? 4 : 8;

template <int kRows>
using WidthWords = std::conditional_t<kWidth<kRows> == 8, uint4, uint2>;

__device__ __forceinline__ void UnpackWords(const uint4& word, float (&x)[8]) { Unpack8(word, x); }
__device__ __forceinline__ void UnpackWords(const uint2& word, float (&x)[4]) {
  device::UnpackPair<device::Bf16>(word.x, x[0], x[1]);
  device::UnpackPair<device::Bf16>(word.y, x[2], x[3]);
}

// One block: a chunk, and kWidth columns a thread. partial: [chunks, kRows, K].
template <int kRows>
__global__ void __launch_bounds__(kThreadsMax, kRows > 4 || kRows == 1 ? 2 : 1)
    PartialKernel(Bf16BackwardInput problem, int64_t first_row, float* partial) {
  constexpr int kColumns = kWidth<kRows>, kAhead = kReadAhead<kRows>;
  using Words = WidthWords<kRows>;
  __shared__ __align__(16) float g[kChunk][kRows];
  device::AllowLaunchBehind();
  const int64_t first = int64_t{blockIdx.x} * kChunk;
  const int count = static_cast<int>(min(int64_t{kChunk}, problem.shape.outputs - first));
  const int64_t k = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kColumns;
  const bool inside = k < problem.shape.inputs;
  const uint16_t* weight = problem.weight + first * problem.shape.inputs + k;
  const auto load = [&](int n, Words(&words)[kAhead]) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      words[i] = __ldg(reinterpret_cast<const Words*>(weight + (n + i) * problem.shape.inputs));
    }
  };
  // The next rows are on their way while those before are multiplied.
  Words words[kAhead] = {}, next[kAhead] = {};
  if (inside && count >= kAhead) load(0, words);
  for (int i = static_cast<int>(threadIdx.x); i < kChunk * kRows;
       i += static_cast<int>(blockDim.x)) {
    const int64_t row = first_row + i % kRows;
    const bool present = row < problem.shape.rows && i / kRows < count;
    g[i / kRows][i % kRows] = present ? Gradient(problem.grad, row, first + i / kRows) : 0.0f;
  }
  __syncthreads();
  if (!inside) return;
  float sum[kRows][kColumns] = {};
  const auto add = [&](const Words& word, int n) {
    float w[kColumns];
    UnpackWords(word, w);
#pragma unroll
    for (int t = 0; t < kRows; ++t) {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) sum[t][i] = arith::Fma(g[n][t], w[i], sum[t][i]);
    }
  };
  int n = 0;
#pragma unroll 2
  for (; n + kAhead <= count; n += kAhead) {
    if (n + 2 * kAhead <= count) load(n + kAhead, next);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) add(words[i], n + i);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) words[i] = next[i];
  }
  for (; n < count; ++n) {
    add(__ldg(reinterpret_cast<const Words*>(weight + n * problem.shape.inputs)), n);
  }
#pragma unroll
  for (int t = 0; t < kRows; ++t) {
    if (first_row + t >= problem.shape.rows) break;
    float4* to = reinterpret_cast<float4*>(
        partial + (int64_t{blockIdx.x} * kRows + t) * problem.shape.inputs + k);
#pragma unroll
    for (int i = 0; i < kColumns / 4; ++i) {
      to[i] = make_float4(sum[t][4 * i], sum[t][4 * i + 1], sum[t][4 * i + 2], sum[t][4 * i + 3]);
    }
  }
}

// The fold: 32 columns of one row a block. All warps bring pieces of the partials to shared
// memory, the first one adds.
constexpr int kFoldThreads = 256;
constexpr int kFoldColumns = 32;
constexpr int kPiece = 256;  // chunks
constexpr int kPieces = 4;
constexpr int kFoldBytes = kPieces * kPiece * kFoldColumns * static_cast<int>(sizeof(float));

__global__ void __launch_bounds__(kFoldThreads)
    FoldKernel(Bf16BackwardInput problem, int64_t first_row, int pass_rows, const float* partial,
               int64_t chunks) {
  extern __shared__ __align__(16) float staged[];  // [kPieces][kPiece][kFoldColumns]
  device::WaitForLaunchAhead();
  const int64_t k0 = int64_t{blockIdx.x} * kFoldColumns;
  const int64_t row = first_row + blockIdx.y;
  const int64_t pieces = (chunks + kPiece - 1) / kPiece;
  const auto fetch = [&](int64_t piece) {
    for (int i = static_cast<int>(threadIdx.x); i < kPiece * kFoldColumns / 4; i += kFoldThreads) {
      const int64_t chunk = piece * kPiece + i / (kFoldColumns / 4);
      const int64_t k = k0 + i % (kFoldColumns / 4) * 4;
      const bool present = chunk < chunks && k < problem.shape.inputs;
      const int64_t at = (chunk * pass_rows + blockIdx.y) * problem.shape.inputs + k;
      device::CopyAsync16(staged + (piece % kPieces * kPiece * kFoldColumns + i * 4),
                          partial + (present ? at : 0), present);
    }
    device::CopyAsyncCommit();
  };
  for (int piece = 0; piece < kPieces - 1; ++piece) fetch(piece);
  float sum = 0.0f;
  for (int64_t piece = 0; piece < pieces; ++piece) {
    device::CopyAsyncWait<kPieces - 2>();
    __syncthreads();  // the piece is there, and the one before it has been added
    fetch(piece + kPieces - 1);
    if (threadIdx.x >= kFoldColumns) continue;
    const float* from = staged + piece % kPieces * kPiece * kFoldColumns + threadIdx.x;
    const int count = static_cast<int>(min(int64_t{kPiece}, chunks - piece * kPiece));
    int c = 0;
    if (piece == 0) sum = from[c++ * kFoldColumns];
#pragma unroll 16
    for (; c < count; ++c) sum = arith::Add(sum, from[c * kFoldColumns]);
  }
  const int64_t k = k0 + threadIdx.x;
  if (threadIdx.x < kFoldColumns && k < problem.shape.inputs) {
    WriteGradX(problem, row * problem.shape.inputs + k, sum);
  }
}

int64_t Chunks(int64_t outputs) { return (outputs + kChunk - 1) / kChunk; }

template <int kRows>
absl::Status LaunchPass(const Bf16BackwardInput& problem, int64_t first_row, float* partial,
                        cudaStream_t stream) {
  const int64_t chunks = Chunks(problem.shape.outputs);
  const int64_t groups = problem.shape.inputs / kWidth<kRows>;
  const unsigned threads = RowThreads(groups, kThreadsMax);
  const auto columns = static_cast<unsigned>((groups + threads - 1) / int64_t{threads});
  RLK_RETURN_IF_ERROR(LaunchShared(&PartialKernel<kRows>,
                                   dim3(static_cast<unsigned>(chunks), columns), threads, 0, stream,
                                   problem, first_row, partial));
  RLK_ASSIGN_OR_RETURN(const cuda::DeviceShape device, cuda::CurrentDeviceShape());
  return cuda::LaunchWith(
      &FoldKernel,
      {.blocks = static_cast<unsigned>((problem.shape.inputs + kFoldColumns - 1) / kFoldColumns),
       .blocks_y = static_cast<unsigned>(std::min<int64_t>(kRows, problem.shape.rows - first_row)),
       .threads = kFoldThreads,
       .shared_bytes = kFoldBytes,
       .starts_early = device.capability >= 90},
      stream, problem, first_row, kRows, static_cast<const float*>(partial), chunks);
}

}  // namespace

int64_t Bf16BackwardInputBytes(const Shape& shape) {
  if (shape.rows > kTiledRows) return TiledBackwardInputBytes(shape);
  const int64_t pass = shape.rows == 1 ? 1 : shape.rows <= 4 ? 4 : kRowsMax;
  return Chunks(shape.outputs) * pass * shape.inputs * static_cast<int64_t>(sizeof(float));
}

absl::Status LaunchBf16BackwardInput(const Bf16BackwardInput& problem, void* workspace,
                                     StreamRef stream) {
  if (problem.shape.rows > kTiledRows) {
    const TiledBackwardInput tiled{problem.shape,  problem.grad, {DType::kBF16, problem.weight},
                                   problem.grad_x, problem.temb, problem.silu};
    return LaunchTiledBackwardInput(tiled, workspace, stream);
  }
  auto* partial = static_cast<float*>(workspace);
  const auto pass = problem.shape.rows == 1   ? &LaunchPass<1>
                    : problem.shape.rows <= 4 ? &LaunchPass<4>
                                              : &LaunchPass<kRowsMax>;
  for (int64_t row = 0; row < problem.shape.rows; row += kRowsMax) {
    RLK_RETURN_IF_ERROR(pass(problem, row, partial, cuda::CudaStream(stream)));
  }
  return absl::OkStatus();
}

}  // namespace rlk::linear
