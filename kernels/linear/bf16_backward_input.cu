// grad_x for few rows: one pass over the weights makes the partial sum of every chunk, a second
// kernel folds the partials in order.
#include <algorithm>

#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"
#include "kernels/device/async_copy.cuh"
#include "kernels/linear/backward_tile.h"
#include "kernels/linear/bf16_gradient.cuh"
#include "kernels/linear/launch.cuh"
#include "kernels/linear/shared_memory.h"

namespace rlk::linear {
namespace {

constexpr int kChunk = 64;   // outputs of a partial sum
constexpr int kRowsMax = 8;  // of a pass
// Above the first of these a tiled product is faster; above the second, for kTiledFirst of them.
constexpr int64_t kTiledRows = 40, kPassRows = 24, kTiledFirst = 32;

constexpr int kColumns = 8;         // of a thread
constexpr unsigned kThreads = 224;  // two blocks have the registers that eight rows need
constexpr int kLanesMax = 112;      // threads of a chunk
constexpr int kSlotsMax = 16;       // chunks of a block
// Rows of weights that are copied together, and how many such groups are on their way or read.
constexpr int kGroup = 4, kStages = 4;
constexpr int kGroups = kChunk / kGroup;

// Floats of an output's gradients, and of a chunk's: chunks begin in different banks.
template <int kRows>
constexpr int kPadded = kRows <= 2 ? kRows : (kRows + 3) / 4 * 4;
template <int kRows>
__host__ __device__ constexpr int ChunkFloats() {
  return kChunk * kPadded<kRows> + 4;
}

// Partials of one row: [chunks][K]. Of more: [rows][blocks][chunks][kBlockColumns], so that what a
// warp folds is one run of memory.
constexpr int kBlockColumns = 128;

__host__ __device__ constexpr int64_t BlockedAt(int64_t inputs, int64_t chunks, int64_t row,
                                                int64_t chunk, int64_t column) {
  const int64_t blocks = (inputs + kBlockColumns - 1) / kBlockColumns;
  return ((row * blocks + column / kBlockColumns) * chunks + chunk) * kBlockColumns +
         column % kBlockColumns;
}

// How a block's threads share the matrix: `slots` chunks, `lanes` times kColumns columns of each.
struct Layout {
  int lanes, slots, columns;  // columns: blocks beside each other

  explicit Layout(int64_t inputs) {
    const int64_t groups = inputs / kColumns;
    const int64_t beside = (groups + kLanesMax - 1) / kLanesMax;
    columns = static_cast<int>(beside);
    lanes = static_cast<int>((groups + beside - 1) / beside);
    slots = std::min(static_cast<int>(kThreads) / lanes, kSlotsMax);
  }
};

template <int kRows>
__device__ __forceinline__ void LoadGradients(const float* from, float (&g)[kPadded<kRows>]) {
  if constexpr (kRows == 1) {
    g[0] = *from;
  } else if constexpr (kRows == 2) {
    const float2 v = *reinterpret_cast<const float2*>(from);
    g[0] = v.x, g[1] = v.y;
  } else {
#pragma unroll
    for (int i = 0; i < kPadded<kRows>; i += 4) {
      const float4 v = *reinterpret_cast<const float4*>(from + i);
      g[i] = v.x, g[i + 1] = v.y, g[i + 2] = v.z, g[i + 3] = v.w;
    }
  }
}

// The gradients of a block's chunks, in FP32; absent ones are zero.
template <int kRows>
__device__ __forceinline__ void StageGradients(const Bf16BackwardInput& problem, bool vector,
                                               int64_t first_row, int64_t first_chunk, int slots,
                                               float* to) {
  for (int i = static_cast<int>(threadIdx.x); i < slots * (kChunk / 8) * kRows; i += kThreads) {
    const int t = i % kRows, octet = i / kRows % (kChunk / 8), slot = i / kRows / (kChunk / 8);
    const int64_t channel = (first_chunk + slot) * kChunk + octet * 8;
    float v[8] = {};
    if (first_row + t < problem.shape.rows && channel < problem.shape.outputs) {
      Gradient8(problem.grad, vector, first_row + t, channel, problem.shape.outputs, v);
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      to[slot * ChunkFloats<kRows>() + (octet * 8 + n) * kPadded<kRows> + t] = v[n];
    }
  }
}

// A thread's columns of a chunk's rows, in order, by copies into places of its own.
class WeightStream {
 public:
  __device__ __forceinline__ WeightStream(const Bf16BackwardInput& problem, bool inside,
                                          int64_t row, int64_t column)
      : from_(problem.weight + (inside ? row * problem.shape.inputs + column : 0)),
        stride_(problem.shape.inputs),
        present_(inside ? static_cast<int>(min(int64_t{kChunk}, problem.shape.outputs - row)) : 0) {
  }
  // The next rows, zero beyond the matrix; after the last an empty group of copies.
  __device__ __forceinline__ void Fetch(uint4 (&to)[kGroup][kThreads]) {
    if (fetched_ < kChunk) {
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        device::CopyAsync16(&to[i][threadIdx.x], from_ + i * stride_, fetched_ + i < present_);
      }
    }
    device::CopyAsyncCommit();
    from_ += kGroup * stride_;
    fetched_ += kGroup;
  }

 private:
  const uint16_t* from_;
  int64_t stride_;
  int present_, fetched_ = 0;
};

template <int kRows>
__global__ void __launch_bounds__(kThreads, 2)
    PartialKernel(Bf16BackwardInput problem, bool vector, int64_t first_row, Layout layout,
                  float* partial) {
  extern __shared__ __align__(16) uint4 memory[];
  auto& ring = *reinterpret_cast<uint4(*)[kStages][kGroup][kThreads]>(memory);
  float* const gradients = reinterpret_cast<float*>(memory + kStages * kGroup * kThreads);
  device::AllowLaunchBehind();
  const int thread = static_cast<int>(threadIdx.x);
  const int slot = min(thread / layout.lanes, layout.slots - 1);
  const int64_t first_chunk = int64_t{blockIdx.x} / layout.columns * layout.slots;
  const int64_t chunk = first_chunk + slot;
  const int64_t k =
      (int64_t{blockIdx.x} % layout.columns * layout.lanes + thread % layout.lanes) * kColumns;
  const bool inside = thread < layout.slots * layout.lanes && k < problem.shape.inputs &&
                      chunk * kChunk < problem.shape.outputs;
  WeightStream stream(problem, inside, chunk * kChunk, k);
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) stream.Fetch(ring[i]);
  StageGradients<kRows>(problem, vector, first_row, first_chunk, layout.slots, gradients);
  __syncthreads();
  const float* gradient = gradients + slot * ChunkFloats<kRows>();
  float sum[kRows][kColumns] = {};
#pragma unroll 1
  for (int group = 0; group < kGroups; ++group) {
    device::CopyAsyncWait<kStages - 2>();
    uint4 words[kGroup];
#pragma unroll
    for (int i = 0; i < kGroup; ++i) words[i] = ring[group % kStages][i][thread];
    stream.Fetch(ring[(group + kStages - 1) % kStages]);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      float w[kColumns], g[kPadded<kRows>];
      Unpack8(words[i], w);
      LoadGradients<kRows>(gradient + i * kPadded<kRows>, g);
#pragma unroll
      for (int t = 0; t < kRows; ++t) {
#pragma unroll
        for (int c = 0; c < kColumns; ++c) sum[t][c] = arith::Fma(g[t], w[c], sum[t][c]);
      }
    }
    gradient += kGroup * kPadded<kRows>;
  }
  if (!inside) return;
  const int64_t inputs = problem.shape.inputs;
  const int64_t chunks = (problem.shape.outputs + kChunk - 1) / kChunk;
#pragma unroll
  for (int t = 0; t < kRows; ++t) {
    float4* const to = reinterpret_cast<float4*>(
        partial + (kRows == 1 ? chunk * inputs + k : BlockedAt(inputs, chunks, t, chunk, k)));
    to[0] = make_float4(sum[t][0], sum[t][1], sum[t][2], sum[t][3]);
    to[1] = make_float4(sum[t][4], sum[t][5], sum[t][6], sum[t][7]);
  }
}

// The fold of one row: 32 columns a block. All warps bring pieces of the partials to shared memory,
// the first one adds.
constexpr int kFoldThreads = 256;
constexpr int kFoldColumns = 32;
constexpr int kPiece = 256;  // chunks
constexpr int kPieces = 4;
constexpr int kFoldBytes = kPieces * kPiece * kFoldColumns * static_cast<int>(sizeof(float));

__global__ void __launch_bounds__(kFoldThreads)
    FoldRowKernel(Bf16BackwardInput problem, int64_t row, const float* partial, int64_t chunks) {
  extern __shared__ __align__(16) float staged[];  // [kPieces][kPiece][kFoldColumns]
  device::WaitForLaunchAhead();
  const int64_t k0 = int64_t{blockIdx.x} * kFoldColumns;
  const int64_t pieces = (chunks + kPiece - 1) / kPiece;
  const auto fetch = [&](int64_t piece) {
    for (int i = static_cast<int>(threadIdx.x); i < kPiece * kFoldColumns / 4; i += kFoldThreads) {
      const int64_t chunk = piece * kPiece + i / (kFoldColumns / 4);
      const int64_t k = k0 + i % (kFoldColumns / 4) * 4;
      const bool present = chunk < chunks && k < problem.shape.inputs;
      const int64_t at = chunk * problem.shape.inputs + k;
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

// The fold of several rows: a warp has kBlockColumns of one, four a lane, and waits for its
// own loads alone.
constexpr int kFoldGroup = 16, kFoldStages = 6;
constexpr int kFoldRowsBytes = kFoldStages * kFoldGroup * 32 * static_cast<int>(sizeof(float4));

__global__ void __launch_bounds__(32)
    FoldRowsKernel(Bf16BackwardInput problem, int64_t first_row, const float* partial, int chunks) {
  extern __shared__ float4 words[];  // [kFoldStages][kFoldGroup][32]
  device::WaitForLaunchAhead();
  const int64_t inputs = problem.shape.inputs;
  const int64_t k = int64_t{blockIdx.x} * kBlockColumns + threadIdx.x * 4;
  const bool inside = k < inputs;
  const float* from = partial + BlockedAt(inputs, chunks, blockIdx.y, 0, inside ? k : 0);
  int fetched = 0, put = 0, take = 0;
  const auto fetch = [&] {
    float4* const to = words + put * kFoldGroup * 32 + threadIdx.x;
#pragma unroll
    for (int i = 0; i < kFoldGroup; ++i) {
      if (fetched + i < chunks) device::CopyAsync16(to + i * 32, from + i * kBlockColumns, true);
    }
    device::CopyAsyncCommit();
    fetched += kFoldGroup;
    from += kFoldGroup * kBlockColumns;
    put = put + 1 == kFoldStages ? 0 : put + 1;
  };
#pragma unroll 1
  for (int i = 0; i < kFoldStages - 1; ++i) fetch();
  float sum[4];
  for (int chunk = 0; chunk < chunks; chunk += kFoldGroup) {
    device::CopyAsyncWait<kFoldStages - 2>();
    float v[kFoldGroup][4];
#pragma unroll
    for (int i = 0; i < kFoldGroup; ++i) {
      const float4 word = words[(take * kFoldGroup + i) * 32 + threadIdx.x];
      v[i][0] = word.x, v[i][1] = word.y, v[i][2] = word.z, v[i][3] = word.w;
    }
    take = take + 1 == kFoldStages ? 0 : take + 1;
    fetch();
#pragma unroll
    for (int i = 0; i < kFoldGroup; ++i) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (chunk == 0 && i == 0) {
          sum[c] = v[0][c];
        } else if (chunk + i < chunks) {
          sum[c] = arith::Add(sum[c], v[i][c]);
        }
      }
    }
  }
  if (!inside) return;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    WriteGradX(problem, (first_row + blockIdx.y) * inputs + k + c, sum[c]);
  }
}

int64_t Chunks(int64_t outputs) { return (outputs + kChunk - 1) / kChunk; }

absl::Status LaunchFold(const Bf16BackwardInput& problem, int64_t first_row, int rows,
                        const float* partial, cudaStream_t stream) {
  RLK_ASSIGN_OR_RETURN(const cuda::DeviceShape device, cuda::CurrentDeviceShape());
  const int64_t inputs = problem.shape.inputs, chunks = Chunks(problem.shape.outputs);
  cuda::LaunchShape shape;
  shape.starts_early = device.capability >= 90;
  if (rows == 1) {
    shape.blocks = static_cast<unsigned>((inputs + kFoldColumns - 1) / kFoldColumns);
    shape.threads = kFoldThreads;
    shape.shared_bytes = kFoldBytes;
    return cuda::LaunchWith(&FoldRowKernel, shape, stream, problem, first_row, partial, chunks);
  }
  shape.blocks = static_cast<unsigned>((inputs + kBlockColumns - 1) / kBlockColumns);
  shape.blocks_y = static_cast<unsigned>(rows);
  shape.threads = 32;
  shape.shared_bytes = kFoldRowsBytes;
  return cuda::LaunchWith(&FoldRowsKernel, shape, stream, problem, first_row, partial,
                          static_cast<int>(chunks));
}

template <int kRows>
absl::Status LaunchPass(const Bf16BackwardInput& problem, int64_t first_row, float* partial,
                        cudaStream_t stream) {
  const Layout layout(problem.shape.inputs);
  RLK_ASSIGN_OR_RETURN(const unsigned blocks,
                       cuda::GridBlocks(Chunks(problem.shape.outputs), layout.slots));
  const auto shared = static_cast<int>(sizeof(uint4) * kStages * kGroup * kThreads +
                                       sizeof(float) * layout.slots * ChunkFloats<kRows>());
  RLK_RETURN_IF_ERROR(LaunchShared(
      &PartialKernel<kRows>, dim3(blocks * static_cast<unsigned>(layout.columns)), kThreads, shared,
      stream, problem, VectorGradient(problem.grad), first_row, layout, partial));
  return LaunchFold(problem, first_row, kRows, partial, stream);
}

static_assert(std::max({kFoldBytes, kFoldRowsBytes}) <= kSharedBytesPerBlock);

// The rows that go by tiles, of more than kPassRows.
Shape TiledRowsOf(Shape shape) {
  if (shape.rows <= kTiledRows) shape.rows = std::min(shape.rows, kTiledFirst);
  return shape;
}

using Pass = absl::Status (*)(const Bf16BackwardInput&, int64_t, float*, cudaStream_t);
constexpr Pass kPasses[kRowsMax] = {&LaunchPass<1>, &LaunchPass<2>, &LaunchPass<3>, &LaunchPass<4>,
                                    &LaunchPass<5>, &LaunchPass<6>, &LaunchPass<7>, &LaunchPass<8>};

}  // namespace

int64_t Bf16BackwardInputBytes(const Shape& shape) {
  const int64_t tiled = shape.rows > kPassRows ? TiledBackwardInputBytes(TiledRowsOf(shape)) : 0;
  const int64_t rows = std::min<int64_t>(shape.rows, kRowsMax);
  const int64_t passes = BlockedAt(shape.inputs, Chunks(shape.outputs), rows, 0, 0) *
                         static_cast<int64_t>(sizeof(float));
  return shape.rows > kTiledRows ? tiled : std::max(tiled, passes);
}

absl::Status LaunchBf16BackwardInput(const Bf16BackwardInput& problem, void* workspace,
                                     StreamRef stream) {
  int64_t row = 0;
  if (problem.shape.rows > kPassRows) {
    const Shape first = TiledRowsOf(problem.shape);
    const TiledBackwardInput tiled{first,          problem.grad, {DType::kBF16, problem.weight},
                                   problem.grad_x, problem.temb, problem.silu};
    RLK_RETURN_IF_ERROR(LaunchTiledBackwardInput(tiled, workspace, stream));
    row = first.rows;
  }
  for (; row < problem.shape.rows; row += kRowsMax) {
    const Pass pass = kPasses[std::min<int64_t>(problem.shape.rows - row, kRowsMax) - 1];
    RLK_RETURN_IF_ERROR(
        pass(problem, row, static_cast<float*>(workspace), cuda::CudaStream(stream)));
  }
  return absl::OkStatus();
}

}  // namespace rlk::linear
