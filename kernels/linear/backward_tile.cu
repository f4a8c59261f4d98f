// grad_weight and grad_x for many rows.
//
//   grad_weight: m = output n, r = row t; one chain.
//   grad_x:      m = row t, r = output n; chains of 64, folded ascending by the blocks that have
//                the tile, one after the other. Where there are fewer tiles than multiprocessors,
//                by slabs (backward_slab.cuh).
#include <algorithm>
#include <cstddef>

#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"
#include "kernels/linear/backward_feed.cuh"
#include "kernels/linear/backward_slab.h"
#include "kernels/linear/backward_tile.cuh"
#include "kernels/linear/backward_tile.h"
#include "kernels/linear/backward_walk.cuh"
#include "kernels/linear/launch.cuh"
#include "kernels/linear/shared_memory.h"

namespace rlk::linear {
namespace {

constexpr int kChunk = 64;

using P = WholePlan;
static_assert(kChunk % P::kStageTerms == 0);

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
struct TileOrigin {
  int64_t row, column;

  __device__ __forceinline__ TileOrigin(int64_t tile, int64_t across)
      : row(tile / across * kTileRows), column(tile % across * kTileColumns) {}
};
__host__ __device__ __forceinline__ int64_t TilesAcross(int64_t columns) {
  return (columns + kTileColumns - 1) / kTileColumns;
}
__host__ __device__ __forceinline__ int64_t TilesOf(int64_t rows, int64_t columns) {
  return (rows + kTileRows - 1) / kTileRows * TilesAcross(columns);
}

// Visits the rows in runs whose number an int holds, of whole stages but for the last.
template <typename Visit>
__device__ __forceinline__ void ForRuns(int64_t rows, const Visit& visit) {
  constexpr int64_t kRun = 1 << 30;
#pragma unroll 1
  for (; rows > 0; rows -= kRun) visit(static_cast<int>(min(rows, kRun)));
}

// A tile's outputs: from the carry, if there is one, and to their places.
class WeightTile {
 public:
  __device__ __forceinline__ WeightTile(const TiledBackwardWeight& problem, const Place<P>& place,
                                        int64_t row, int64_t column)
      : problem_(problem), place_(place), row_(row), column_(column) {}

  __device__ __forceinline__ void Begin(ThreadSums& sum) const {
    if (problem_.carry == nullptr) return;
    Each([&](int64_t at, int i, int j) {
      const float4 carry = *reinterpret_cast<const float4*>(problem_.carry + at);
      float* const v = &sum[i][j];
      v[0] = carry.x, v[1] = carry.y, v[2] = carry.z, v[3] = carry.w;
    });
  }
  __device__ __forceinline__ void Write(ThreadSums& sum) const {
    Each([&](int64_t at, int i, int j) {
      float* const v = &sum[i][j];
#pragma unroll
      for (int c = 0; c < 4; ++c) v[c] = arith::Canonical(v[c]);
      if (problem_.accumulator != nullptr) Write4({DType::kF32, problem_.accumulator}, at, v);
      Write4(problem_.grad_weight, at, v);
    });
  }
  // To BF16 alone, whose cast makes the canonical NaN.
  __device__ __forceinline__ void WriteBf16(const ThreadSums& sum) const {
    const Shape& shape = problem_.shape;
    auto* to = static_cast<uint16_t*>(problem_.grad_weight.data) +
               (row_ + place_.row0) * shape.inputs + column_ + place_.column0;
    const bool whole = row_ + kTileRows <= shape.outputs && column_ + kTileColumns <= shape.inputs;
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
      for (int j = 0; j < kThreadColumns; j += 4) {
        const float* const v = &sum[i][j];
        if (!whole && !Inside(i, j)) continue;
        *reinterpret_cast<uint2*>(to + (place_.Column(j) - place_.column0)) = make_uint2(
            device::PackPair<device::Bf16>(v[0], v[1]), device::PackPair<device::Bf16>(v[2], v[3]));
      }
      to += (i % 4 == 3 ? Place<P>::kRowStep - 3 : 1) * shape.inputs;
    }
  }

 private:
  __device__ __forceinline__ bool Inside(int i, int j) const {
    return row_ + place_.Row(i) < problem_.shape.outputs &&
           column_ + place_.Column(j) < problem_.shape.inputs;
  }
  template <typename Visit>
  __device__ __forceinline__ void Each(const Visit& visit) const {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
      for (int j = 0; j < kThreadColumns; j += 4) {
        const int64_t n = row_ + place_.Row(i), k = column_ + place_.Column(j);
        if (Inside(i, j)) visit(n * problem_.shape.inputs + k, i, j);
      }
    }
  }

  const TiledBackwardWeight& problem_;
  const Place<P>& place_;
  int64_t row_, column_;
};

// Blocks take tiles in turn; while one is written, the operands of the next are on their way.
// kGrad but kAny: x in BF16, no carry, and BF16 alone is written.
template <Form kGrad>
__global__ void __launch_bounds__(kTileThreads, 1)
    WeightTileKernel(const __grid_constant__ TiledBackwardWeight problem, bool vector) {
  constexpr bool kPlain = kGrad != Form::kAny;
  extern __shared__ __align__(16) std::byte shared[];
  TileRing<P>& ring = *reinterpret_cast<TileRing<P>*>(shared);
  ring.Init();
  const Shape& shape = problem.shape;
  const int64_t down = (shape.outputs + kTileRows - 1) / kTileRows;
  BlockWalk walk(TilesAcross(shape.inputs));
  Slot<P> slot;
  if (threadIdx.x < kBringers) {
    GiveRegisters<kBringerRegisters>();
#pragma unroll 1
    for (; walk.row < down; walk.Next()) {
      ColumnLoader<kTileRows, kGrad> a(problem.grad, vector, walk.row * kTileRows);
      ColumnLoader<kTileColumns, kPlain ? Form::kBf16 : Form::kAny> b(problem.x, shape.inputs,
                                                                      walk.column * kTileColumns);
      ForRuns(shape.rows, [&](int rows) { BringAll(ring, slot, rows, a, b); });
    }
    return;
  }
  TakeRegisters<kAdderRegisters>();
  const Place<P> place(static_cast<int>(threadIdx.x) - kBringers);
#pragma unroll 1
  for (; walk.row < down; walk.Next()) {
    const WeightTile tile(problem, place, walk.row * kTileRows, walk.column * kTileColumns);
    ThreadSums sum = {};
    if constexpr (!kPlain) tile.Begin(sum);
    ForRuns(shape.rows, [&](int rows) { AddAll(ring, slot, rows, place, sum); });
    if constexpr (kPlain) {
      tile.WriteBf16(sum);
    } else {
      tile.Write(sum);
    }
  }
}

// The operands of grad_x for chunks [begin, end) of a tile.
template <Form kForm>
__device__ __forceinline__ void BringChunks(const TiledBackwardInput& problem, bool vector,
                                            const TileOrigin& first, int64_t begin, int64_t end,
                                            TileRing<P>& ring, Slot<P>& slot) {
  const Shape& shape = problem.shape;
  RowLoader<kTileRows, kForm> a(problem.grad, vector, first.row, shape.rows, begin * kChunk);
  ColumnLoader<kTileColumns, kForm> b(problem.weight, shape.inputs, first.column, begin * kChunk);
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
struct Handoff {
  float totals[kMaxBlocks][kSums][kAdders];
  int started;  // blocks
  int ready[kMaxBlocks];

  // Blocks are numbered as they start: those before one have started, and it can wait for them.
  __device__ __forceinline__ int Number() {
    __shared__ int number;
    if (threadIdx.x == 0) number = atomicAdd(&started, 1);
    __syncthreads();
    return number;
  }
  __device__ __forceinline__ void Leave(int block, int adder, const ThreadSums& total) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      __stcg(&totals[block][i][adder], total[i / kThreadColumns][i % kThreadColumns]);
    }
    __threadfence();
    asm volatile("bar.sync 1, %0;" ::"n"(kAdders) : "memory");
    if (adder == 0) {
      asm volatile("st.release.gpu.global.s32 [%0], 1;" ::"l"(&ready[block]) : "memory");
    }
  }
  __device__ __forceinline__ void Take(int block, int adder, ThreadSums& total) const {
    int there = 0;
    do {
      asm volatile("ld.acquire.gpu.global.s32 %0, [%1];"
                   : "=r"(there)
                   : "l"(&ready[block])
                   : "memory");
    } while (there == 0);
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      total[i / kThreadColumns][i % kThreadColumns] = __ldcg(&totals[block][i][adder]);
    }
  }
};

// Shared memory of a kernel that writes grad_x: a row of sums of each thread goes through it, so
// that the code which writes one is there once a row.
struct InputShared {
  TileRing<P> ring;
  float row[kThreadColumns][kAdders];
};
static_assert(sizeof(InputShared) <= kSharedBytesPerBlock);

__device__ __forceinline__ void WriteTotals(const TiledBackwardInput& problem,
                                            const TileOrigin& first, const Place<P>& place,
                                            int adder, const ThreadSums& total,
                                            float (&row)[kThreadColumns][kAdders]) {
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
    for (int j = 0; j < kThreadColumns; ++j) row[j][adder] = total[i][j];
    const int64_t t = first.row + place.Row(i);
    if (t >= problem.shape.rows) continue;
#pragma unroll 1
    for (int j = 0; j < kThreadColumns; ++j) {
      const int64_t k = first.column + place.Column(j);
      if (k < problem.shape.inputs) {
        WriteGradX(problem, t * problem.shape.inputs + k, row[j][adder]);
      }
    }
  }
}

// A block has all chunks of a tile, or those that follow another block's. x + -0 is x, for every x.
template <Form kForm>
__global__ void __launch_bounds__(kTileThreads, 1)
    InputTileKernel(const __grid_constant__ TiledBackwardInput problem, bool vector,
                    Handoff* handoff) {
  extern __shared__ __align__(16) std::byte shared[];
  auto& [ring, row] = *reinterpret_cast<InputShared*>(shared);
  ring.Init();
  const Shape& shape = problem.shape;
  const int64_t across = TilesAcross(shape.inputs);
  const int block = handoff->Number();
  const ChunkShare share(TilesOf(shape.rows, shape.inputs), ChunksOf(shape), block);
  Slot<P> slot;
  if (threadIdx.x < kBringers) {
    GiveRegisters<kBringerRegisters>();
    for (int i = 0; i < share.Parts(); ++i) {
      const ChunkShare::Part part = share.At(i);
      BringChunks<kForm>(problem, vector, {part.tile, across}, part.begin, part.end, ring, slot);
    }
    return;
  }
  TakeRegisters<kAdderRegisters>();
  const int adder = static_cast<int>(threadIdx.x) - kBringers;
  const Place<P> place(adder);
  for (int i = 0; i < share.Parts(); ++i) {
    const ChunkShare::Part part = share.At(i);
    ThreadSums total, sum = {};
    if (part.begin > 0) {
      handoff->Take(block - 1, adder, total);
    } else {
#pragma unroll
      for (int s = 0; s < kSums; ++s) {
        total[s / kThreadColumns][s % kThreadColumns] = -0.0f;
      }
    }
    for (int64_t chunk = part.begin; chunk < part.end; ++chunk) {
      AddAll(ring, slot, TermsOf(shape, chunk), place, sum);
#pragma unroll
      for (int s = 0; s < kSums; ++s) {
        float& v = sum[s / kThreadColumns][s % kThreadColumns];
        float& to = total[s / kThreadColumns][s % kThreadColumns];
        to = arith::Add(to, v);
        v = 0.0f;
      }
    }
    if (part.end < share.chunks) {
      handoff->Leave(block, adder, total);
    } else {
      WriteTotals(problem, {part.tile, across}, place, adder, total, row);
    }
  }
}

// Whether slabs are faster: where the tiles alone would not fill a large GPU. The bits are the
// same.
bool InSlabs(const Shape& shape) { return TilesOf(shape.rows, shape.inputs) < 132; }

// One block a multiprocessor, and no more than there are items.
absl::StatusOr<dim3> BlocksFor(int64_t items) {
  RLK_ASSIGN_OR_RETURN(const cuda::DeviceShape device, cuda::CurrentDeviceShape());
  const int64_t blocks = std::min<int64_t>({items, device.multiprocessors, kMaxBlocks});
  return dim3(static_cast<unsigned>(blocks));
}

}  // namespace

absl::Status LaunchTiledBackwardWeight(const TiledBackwardWeight& problem, StreamRef stream) {
  RLK_ASSIGN_OR_RETURN(const dim3 grid,
                       BlocksFor(TilesOf(problem.shape.outputs, problem.shape.inputs)));
  const bool vector = VectorGradient(problem.grad);
  const bool plain = vector && problem.x.dtype == DType::kBF16 && problem.carry == nullptr &&
                     problem.accumulator == nullptr && problem.grad_weight.dtype == DType::kBF16;
  const auto kernel = !plain             ? &WeightTileKernel<Form::kAny>
                      : problem.grad.f32 ? &WeightTileKernel<Form::kF32>
                                         : &WeightTileKernel<Form::kBf16>;
  return LaunchShared(kernel, grid, kTileThreads, static_cast<int>(sizeof(TileRing<P>)),
                      cuda::CudaStream(stream), problem, vector);
}

int64_t TiledBackwardInputBytes(const Shape& shape) {
  return InSlabs(shape) ? SlabBytes(shape) : static_cast<int64_t>(sizeof(Handoff));
}

absl::Status LaunchTiledBackwardInput(const TiledBackwardInput& problem, void* workspace,
                                      StreamRef stream) {
  const Shape& shape = problem.shape;
  if (InSlabs(shape)) return LaunchSlabs(problem, workspace, stream);
  const cudaStream_t on = cuda::CudaStream(stream);
  auto* const handoff = static_cast<Handoff*>(workspace);
  RLK_CUDA_RETURN_IF_ERROR(
      cudaMemsetAsync(&handoff->started, 0, sizeof(handoff->started) + sizeof(handoff->ready), on));
  RLK_ASSIGN_OR_RETURN(const dim3 grid, BlocksFor(TilesOf(shape.rows, shape.inputs)));
  const bool vector = VectorGradient(problem.grad);
  const bool bf16 = vector && !problem.grad.f32 && problem.weight.dtype == DType::kBF16;
  return LaunchShared(bf16 ? &InputTileKernel<Form::kBf16> : &InputTileKernel<Form::kAny>, grid,
                      kTileThreads, static_cast<int>(sizeof(InputShared)), on, problem, vector,
                      handoff);
}

}  // namespace rlk::linear
