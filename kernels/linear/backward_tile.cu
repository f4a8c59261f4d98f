// grad_weight and grad_x for many rows.
//
//   grad_weight: m = output n, r = row t; one chain.
//   grad_x:      m = row t, r = output n; chains of 64, folded ascending: by the blocks that have
//                the tile, one after the other, or, where there are fewer tiles than
//                multiprocessors, chunks in parallel into partial sums, which a second kernel
//                folds.
#include <algorithm>
#include <cstddef>

#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"
#include "kernels/linear/backward_feed.cuh"
#include "kernels/linear/backward_tile.cuh"
#include "kernels/linear/backward_tile.h"
#include "kernels/linear/launch.cuh"
#include "kernels/linear/shared_memory.h"

namespace rlk::linear {
namespace {

constexpr int kChunk = 64;

using SmallPlan = TilePlan<4>;
using FullPlan = TilePlan<8>;
static_assert(kChunk % kStageTerms == 0);

__host__ __device__ __forceinline__ int64_t ChunksOf(const Shape& shape) {
  return (shape.outputs + kChunk - 1) / kChunk;
}
__device__ __forceinline__ int TermsOf(const Shape& shape, int64_t chunk) {
  return static_cast<int>(min(int64_t{kChunk}, shape.outputs - chunk * kChunk));
}

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

// Where a tile begins: tiles are numbered along the columns first, so that blocks which run
// together share both operands.
template <typename P>
struct TilePlace {
  int64_t row, column;

  __device__ __forceinline__ TilePlace(int64_t tile, int64_t across)
      : row(tile / across * P::kRows), column(tile % across * kTileColumns) {}
};
template <typename P>
__host__ __device__ __forceinline__ int64_t TilesOf(int64_t rows, int64_t columns) {
  return (rows + P::kRows - 1) / P::kRows * ((columns + kTileColumns - 1) / kTileColumns);
}

// Visits the rows in runs whose number an int holds, of whole stages but for the last.
template <typename Visit>
__device__ __forceinline__ void ForRuns(int64_t rows, const Visit& visit) {
  constexpr int64_t kRun = 1 << 30;
#pragma unroll 1
  for (; rows > 0; rows -= kRun) visit(static_cast<int>(min(rows, kRun)));
}

// Blocks take tiles in turn; while one is written, the operands of the next are on their way.
template <typename P>
__global__ void __launch_bounds__(kTileThreads, 1)
    WeightTileKernel(const __grid_constant__ TiledBackwardWeight problem, bool vector) {
  extern __shared__ __align__(16) std::byte shared[];
  TileRing<P>& ring = *reinterpret_cast<TileRing<P>*>(shared);
  ring.Init();
  const Shape& shape = problem.shape;
  const int64_t across = (shape.inputs + kTileColumns - 1) / kTileColumns;
  const int64_t tiles = TilesOf<P>(shape.outputs, shape.inputs);
  Slot<P> slot;
  if (threadIdx.x >= kAdders) {
    GiveRegisters<kBringerRegisters>();
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      const TilePlace<P> first(tile, across);
      ColumnLoader<P::kRows> a(problem.grad, vector, first.row);
      ColumnLoader<kTileColumns> b(problem.x, shape.inputs, first.column);
      ForRuns(shape.rows, [&](int rows) { BringAll(ring, slot, rows, a, b); });
    }
    return;
  }
  TakeRegisters<kAdderRegisters>();
  const Place<P> place;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const TilePlace<P> first(tile, across);
    ThreadSums<P> sum = {};
    const auto each = [&](const auto& visit) {
#pragma unroll
      for (int i = 0; i < P::kThreadRows; ++i) {
#pragma unroll
        for (int j = 0; j < P::kThreadColumns; j += 4) {
          const int64_t n = first.row + place.Row(i), k = first.column + place.Column(j);
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
    ForRuns(shape.rows, [&](int rows) { AddAll(ring, slot, rows, place, sum); });
    each([&](int64_t at, float* v) {
#pragma unroll
      for (int i = 0; i < 4; ++i) v[i] = arith::Canonical(v[i]);
      if (problem.accumulator != nullptr) Write4({DType::kF32, problem.accumulator}, at, v);
      Write4(problem.grad_weight, at, v);
    });
  }
}

// The operands of grad_x for chunks [begin, end) of a tile.
template <typename P>
__device__ __forceinline__ void BringChunks(const TiledBackwardInput& problem, bool vector,
                                            const TilePlace<P>& first, int64_t begin, int64_t end,
                                            TileRing<P>& ring, Slot<P>& slot) {
  const Shape& shape = problem.shape;
  RowLoader<P::kRows> a(problem.grad, vector, first.row, shape.rows, begin * kChunk);
  ColumnLoader<kTileColumns> b(problem.weight, shape.inputs, first.column, begin * kChunk);
  for (int64_t chunk = begin; chunk < end; ++chunk) {
    BringAll(ring, slot, TermsOf(shape, chunk), a, b);
  }
}

// The share of a block, all of the same number of chunks to within one: from the middle of a tile,
// whose first chunks the block before has, over whole tiles to the middle of another. That one
// comes first, so that its totals are there when the block behind, at its end, goes on from them.
// Where there are at least as many tiles as blocks no tile has more than two.
struct ChunkShare {
  int64_t chunks;  // of a tile
  int64_t begin, end, first_tile, last_tile;

  __device__ __forceinline__ ChunkShare(int64_t tiles, int64_t chunks, int block)
      : chunks(chunks),
        begin(tiles * chunks * block / gridDim.x),
        end(tiles * chunks * (block + 1) / gridDim.x),
        first_tile(begin / chunks),
        last_tile((end - 1) / chunks) {}

  struct Part {
    int64_t tile, begin, end;  // chunks of the tile
  };
  __device__ __forceinline__ int Parts() const {
    return static_cast<int>(last_tile - first_tile) + 1;
  }
  __device__ __forceinline__ Part At(int i) const {
    const int64_t tile = i == 0 ? last_tile : i + 1 == Parts() ? first_tile : first_tile + i;
    const int64_t zero = tile * chunks;
    return {tile, max(begin - zero, int64_t{0}), min(end - zero, chunks)};
  }
};

// The totals that blocks leave for the blocks behind them.
constexpr int64_t kMaxBlocks = 256;
template <typename P>
struct Handoff {
  float totals[kMaxBlocks][P::kSums][kAdders];
  int started;  // blocks
  int ready[kMaxBlocks];

  // Blocks are numbered as they start: those before one have started, and it can wait for them.
  __device__ __forceinline__ int Number() {
    __shared__ int number;
    if (threadIdx.x == 0) number = atomicAdd(&started, 1);
    __syncthreads();
    return number;
  }
  __device__ __forceinline__ void Leave(int block, const ThreadSums<P>& total) {
#pragma unroll
    for (int i = 0; i < P::kSums; ++i) {
      __stcg(&totals[block][i][threadIdx.x], total[i / P::kThreadColumns][i % P::kThreadColumns]);
    }
    __threadfence();
    asm volatile("bar.sync 1, %0;" ::"n"(kAdders) : "memory");
    if (threadIdx.x == 0) {
      asm volatile("st.release.gpu.global.s32 [%0], 1;" ::"l"(&ready[block]) : "memory");
    }
  }
  __device__ __forceinline__ void Take(int block, ThreadSums<P>& total) const {
    int there = 0;
    do {
      asm volatile("ld.acquire.gpu.global.s32 %0, [%1];"
                   : "=r"(there)
                   : "l"(&ready[block])
                   : "memory");
    } while (there == 0);
#pragma unroll
    for (int i = 0; i < P::kSums; ++i) {
      total[i / P::kThreadColumns][i % P::kThreadColumns] = __ldcg(&totals[block][i][threadIdx.x]);
    }
  }
};

// Shared memory of a kernel that writes grad_x: a row of sums of each thread goes through it, so
// that the code which writes one is there once a row.
template <typename P>
struct InputShared {
  TileRing<P> ring;
  float row[P::kThreadColumns][kAdders];
};
static_assert(sizeof(InputShared<FullPlan>) <= kSharedBytesPerBlock);

template <typename P>
__device__ __forceinline__ void WriteTotals(const TiledBackwardInput& problem,
                                            const TilePlace<P>& first, const Place<P>& place,
                                            const ThreadSums<P>& total,
                                            float (&row)[P::kThreadColumns][kAdders]) {
#pragma unroll
  for (int i = 0; i < P::kThreadRows; ++i) {
#pragma unroll
    for (int j = 0; j < P::kThreadColumns; ++j) row[j][threadIdx.x] = total[i][j];
    const int64_t t = first.row + place.Row(i);
    if (t >= problem.shape.rows) continue;
#pragma unroll 1
    for (int j = 0; j < P::kThreadColumns; ++j) {
      const int64_t k = first.column + place.Column(j);
      if (k < problem.shape.inputs) {
        WriteGradX(problem, t * problem.shape.inputs + k, row[j][threadIdx.x]);
      }
    }
  }
}

// A block has all chunks of a tile, or those that follow another block's. x + -0 is x, for every x.
template <typename P>
__global__ void __launch_bounds__(kTileThreads, 1)
    InputTileKernel(const __grid_constant__ TiledBackwardInput problem, bool vector,
                    Handoff<P>* handoff) {
  extern __shared__ __align__(16) std::byte shared[];
  auto& [ring, row] = *reinterpret_cast<InputShared<P>*>(shared);
  ring.Init();
  const Shape& shape = problem.shape;
  const int64_t across = (shape.inputs + kTileColumns - 1) / kTileColumns;
  const int block = handoff->Number();
  const ChunkShare share(TilesOf<P>(shape.rows, shape.inputs), ChunksOf(shape), block);
  Slot<P> slot;
  if (threadIdx.x >= kAdders) {
    GiveRegisters<kBringerRegisters>();
    for (int i = 0; i < share.Parts(); ++i) {
      const ChunkShare::Part part = share.At(i);
      BringChunks<P>(problem, vector, {part.tile, across}, part.begin, part.end, ring, slot);
    }
    return;
  }
  TakeRegisters<kAdderRegisters>();
  const Place<P> place;
  for (int i = 0; i < share.Parts(); ++i) {
    const ChunkShare::Part part = share.At(i);
    ThreadSums<P> total, sum = {};
    if (part.begin > 0) {
      handoff->Take(block - 1, total);
    } else {
#pragma unroll
      for (int s = 0; s < P::kSums; ++s) {
        total[s / P::kThreadColumns][s % P::kThreadColumns] = -0.0f;
      }
    }
    for (int64_t chunk = part.begin; chunk < part.end; ++chunk) {
      AddAll(ring, slot, TermsOf(shape, chunk), place, sum);
#pragma unroll
      for (int s = 0; s < P::kSums; ++s) {
        float& v = sum[s / P::kThreadColumns][s % P::kThreadColumns];
        float& to = total[s / P::kThreadColumns][s % P::kThreadColumns];
        to = arith::Add(to, v);
        v = 0.0f;
      }
    }
    if (part.end < share.chunks) {
      handoff->Leave(block, total);
    } else {
      WriteTotals<P>(problem, {part.tile, across}, place, total, row);
    }
  }
}

// Few tiles: their chunks in parallel, a run of them a block. partial: [chunks of the pass][T][K].
template <typename P>
__global__ void __launch_bounds__(kTileThreads, 1)
    InputPartialKernel(const __grid_constant__ TiledBackwardInput problem, bool vector,
                       int64_t first_chunk, int64_t chunks, float* partial) {
  extern __shared__ __align__(16) std::byte shared[];
  TileRing<P>& ring = *reinterpret_cast<TileRing<P>*>(shared);
  ring.Init();
  const Shape& shape = problem.shape;
  const int64_t across = (shape.inputs + kTileColumns - 1) / kTileColumns;
  const ChunkShare share(TilesOf<P>(shape.rows, shape.inputs), chunks,
                         static_cast<int>(blockIdx.x));
  Slot<P> slot;
  if (threadIdx.x >= kAdders) {
    GiveRegisters<kBringerRegisters>();
    for (int i = 0; i < share.Parts(); ++i) {
      const ChunkShare::Part part = share.At(i);
      BringChunks<P>(problem, vector, {part.tile, across}, first_chunk + part.begin,
                     first_chunk + part.end, ring, slot);
    }
    return;
  }
  TakeRegisters<kAdderRegisters>();
  const Place<P> place;
  for (int i = 0; i < share.Parts(); ++i) {
    const ChunkShare::Part part = share.At(i);
    const TilePlace<P> first(part.tile, across);
    for (int64_t chunk = part.begin; chunk < part.end; ++chunk) {
      ThreadSums<P> sum = {};
      AddAll(ring, slot, TermsOf(shape, first_chunk + chunk), place, sum);
      float* const to = partial + chunk * shape.rows * shape.inputs;
#pragma unroll
      for (int r = 0; r < P::kThreadRows; ++r) {
#pragma unroll
        for (int j = 0; j < P::kThreadColumns; j += 4) {
          const int64_t t = first.row + place.Row(r), k = first.column + place.Column(j);
          if (t < shape.rows && k < shape.inputs) {
            Write4({DType::kF32, to}, t * shape.inputs + k, &sum[r][j]);
          }
        }
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

// Of the partial sums of a pass; a pass of few chunks would leave multiprocessors idle.
constexpr int64_t kPartialBytes = int64_t{96} << 20;

int64_t PassChunks(const Shape& shape) {
  const int64_t bytes = shape.rows * shape.inputs * static_cast<int64_t>(sizeof(float));
  return std::min(ChunksOf(shape), std::max<int64_t>(1, kPartialBytes / bytes));
}

// Whether chunks run in parallel: where the tiles alone would not fill a large GPU. The bits are
// the same.
bool InPasses(const Shape& shape) { return TilesOf<FullPlan>(shape.rows, shape.inputs) < 132; }

// One block a multiprocessor, and no more than there are items.
absl::StatusOr<dim3> BlocksFor(int64_t items) {
  RLK_ASSIGN_OR_RETURN(const cuda::DeviceShape device, cuda::CurrentDeviceShape());
  const int64_t blocks = std::min<int64_t>({items, device.multiprocessors, kMaxBlocks});
  return dim3(static_cast<unsigned>(blocks));
}

template <typename P>
absl::Status LaunchPasses(const TiledBackwardInput& problem, bool vector, float* workspace,
                          cudaStream_t stream) {
  const Shape& shape = problem.shape;
  const int64_t chunks = ChunksOf(shape), pass = PassChunks(shape);
  float* const total = workspace;
  float* const partial = workspace + shape.rows * shape.inputs;
  RLK_ASSIGN_OR_RETURN(const unsigned fold_blocks,
                       cuda::GridBlocks(shape.rows * shape.inputs, 4 * kFoldThreads));
  for (int64_t first = 0; first < chunks; first += pass) {
    const int64_t count = std::min(pass, chunks - first);
    RLK_ASSIGN_OR_RETURN(const dim3 grid, BlocksFor(TilesOf<P>(shape.rows, shape.inputs) * count));
    RLK_RETURN_IF_ERROR(LaunchShared(&InputPartialKernel<P>, grid, kTileThreads,
                                     static_cast<int>(sizeof(TileRing<P>)), stream, problem, vector,
                                     first, count, partial));
    RLK_RETURN_IF_ERROR(cuda::Launch(&FoldPassKernel, fold_blocks, kFoldThreads, stream, problem,
                                     static_cast<const float*>(partial), count, first == 0,
                                     first + count == chunks, total));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LaunchTiledBackwardWeight(const TiledBackwardWeight& problem, StreamRef stream) {
  using P = FullPlan;
  RLK_ASSIGN_OR_RETURN(const dim3 grid,
                       BlocksFor(TilesOf<P>(problem.shape.outputs, problem.shape.inputs)));
  return LaunchShared(&WeightTileKernel<P>, grid, kTileThreads,
                      static_cast<int>(sizeof(TileRing<P>)), cuda::CudaStream(stream), problem,
                      VectorGradient(problem.grad));
}

int64_t TiledBackwardInputBytes(const Shape& shape) {
  if (!InPasses(shape)) return static_cast<int64_t>(sizeof(Handoff<FullPlan>));
  return (PassChunks(shape) + 1) * shape.rows * shape.inputs * static_cast<int64_t>(sizeof(float));
}

absl::Status LaunchTiledBackwardInput(const TiledBackwardInput& problem, void* workspace,
                                      StreamRef stream) {
  const Shape& shape = problem.shape;
  const bool vector = VectorGradient(problem.grad);
  const cudaStream_t on = cuda::CudaStream(stream);
  if (InPasses(shape)) {
    auto* const floats = static_cast<float*>(workspace);
    return shape.rows <= SmallPlan::kRows ? LaunchPasses<SmallPlan>(problem, vector, floats, on)
                                          : LaunchPasses<FullPlan>(problem, vector, floats, on);
  }
  using P = FullPlan;
  auto* const handoff = static_cast<Handoff<P>*>(workspace);
  RLK_CUDA_RETURN_IF_ERROR(
      cudaMemsetAsync(&handoff->started, 0, sizeof(handoff->started) + sizeof(handoff->ready), on));
  RLK_ASSIGN_OR_RETURN(const dim3 grid, BlocksFor(TilesOf<P>(shape.rows, shape.inputs)));
  return LaunchShared(&InputTileKernel<P>, grid, kTileThreads,
                      static_cast<int>(sizeof(InputShared<P>)), on, problem, vector, handoff);
}

}  // namespace rlk::linear
