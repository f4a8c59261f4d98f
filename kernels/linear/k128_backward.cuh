// Backward of contract bf16-k128-v1 by `wgmma`: C[m, c] = sum over r of A[r, m] B[r, c].
//
//   grad_x:      A the gradient [T, N], m = row t, r = channel n; B the weights [N, K], c = input
//   k. grad_weight: A the gradient, m = channel n, r = row t; B is x [T, K], c = input k.
//
// Both are read as they lie in memory, as tiles of tensor maps: where rows of memory run along the
// result, the tensor cores transpose. A gradient in FP32 is three BF16 parts: a chunk of 128 then
// chains 24 steps instead of 8, the smallest part first.
#pragma once

#include <cstdint>

#include "kernels/device/tensor_core.cuh"
#include "kernels/linear/k128_split.cuh"
#include "kernels/linear/wgmma_feed.cuh"

namespace rlk::linear {

inline constexpr int kProductDepth = 64;                   // r of a stage
inline constexpr int kStoreRows = 16, kStoreColumns = 64;  // of a copy of results
inline constexpr int kStoreBytes = kStoreRows * kStoreColumns * 2;

// Columns c of a tile, warpgroups that multiply a stage (64 m each), stages of the ring, places for
// copies of results that a warp has (0: it writes by itself), and how many times as many
// warpgroups take chunks in turns.
template <int kTileColumns, int kWarpgroups, int kRingStages, int kStorePlaces = 0,
          int kChunkTurns = 1>
struct ProductPlan {
  static constexpr int kColumns = kTileColumns, kGroups = kWarpgroups, kStages = kRingStages;
  static constexpr int kM = 64 * kGroups;
  static constexpr int kStores = kStorePlaces, kTurns = kChunkTurns;
  // Warps that copy. Where several do, stages must become free in order.
  static constexpr int kProducers = kTurns == 1 ? 4 : 1;
  static constexpr int kStageWarps = 4 * kGroups, kConsumerWarps = kTurns * kStageWarps;
  static constexpr int kThreads = 32 * kConsumerWarps + 128;
  static constexpr int kConsumerRegisters = ConsumerRegisters(kGroups * kTurns);
  // Of a stage: tiles of 64 x 64 elements of each operand.
  static constexpr int kTileBytes = 64 * kProductDepth * 2;
  static constexpr int kWeightBytes = kGroups * kTileBytes;
  static constexpr int kXBytes = kColumns / 64 * kTileBytes;
  static constexpr int kPatchBytes = kStores == 0 ? linear::kPatchBytes : kStores * kStoreBytes;
  // Totals between turns, and a barrier for each turn of 64 m.
  static constexpr int kTurnBarriers = kTurns == 1 ? 0 : kTurns * kGroups;
  static constexpr int kTurnBytes = (kTurns == 1 ? 0 : kM * kColumns * 4) +
                                    kTurnBarriers * static_cast<int>(sizeof(device::StageBarrier));
  static constexpr int kSharedBytes =
      kStages * (kWeightBytes + kXBytes + 2 * static_cast<int>(sizeof(device::StageBarrier))) +
      kConsumerWarps * kPatchBytes + kTurnBytes;
  static_assert(kSharedBytes <= 227 << 10);
  // Whoever waits for a stage is less than a turn of the ring behind it.
  static_assert(kTurns == 1 || kStages > 2 * kTermsMax);
};

struct ProductShape {
  int64_t m = 0, columns = 0, length = 0;  // length: of r
  int terms = 1;                           // chained a chunk: A alone, or its three parts
  int parts = 1;                           // of the reduction, each folded by itself
  int a_rows = 0;                          // of a tile of A, where they are m

  __host__ __device__ int64_t Chunks() const { return (length + 127) / 128; }
  // Stages of one term, of the chunk that begins at r: those without any pair are left out.
  __device__ __forceinline__ int Halves(int r) const { return length - r > kProductDepth ? 2 : 1; }
};

struct ProductMaps {
  CUtensorMap a[kTermsMax];
  CUtensorMap b;
  CUtensorMap c;  // in BF16, where results are copied
};

// C [parts][m, columns] in FP32, in BF16, or both; it begins with `start`, or from +0.
struct ProductOutput {
  float* f32 = nullptr;
  uint16_t* bf16 = nullptr;
  const float* start = nullptr;
  float* copy = nullptr;  // of f32
};

// A block's items: the part slowest, then m, then c, from one to that which is gridDim.x further
// on. No division stands between two items of one part: those of few rows are short.
template <typename P>
class ProductWork {
 public:
  __device__ explicit ProductWork(const ProductShape& shape)
      : parts_(shape.parts),
        m_blocks_(static_cast<int>((shape.m + P::kM - 1) / P::kM)),
        columns_(static_cast<int>((shape.columns + P::kColumns - 1) / P::kColumns)),
        chunks_(static_cast<int>(shape.Chunks()) / shape.parts),
        hop_rows_(static_cast<int>(gridDim.x) / columns_),
        hop_columns_(static_cast<int>(gridDim.x) % columns_),
        row_(static_cast<int>(blockIdx.x) / columns_),
        column_(static_cast<int>(blockIdx.x) % columns_) {}

  struct Place {
    int part, m, column;
  };
  // Whether there is an item, and where.
  __device__ __forceinline__ bool Take(Place& place) {
    if (row_ >= parts_ * m_blocks_) return false;
    const int part = parts_ == 1 ? 0 : row_ / m_blocks_;
    place = {part, (row_ - part * m_blocks_) * P::kM, column_ * P::kColumns};
    row_ += hop_rows_;
    column_ += hop_columns_;
    if (column_ >= columns_) {
      column_ -= columns_;
      ++row_;
    }
    return true;
  }
  // Whether Take will find none.
  __device__ __forceinline__ bool Done() const { return row_ >= parts_ * m_blocks_; }
  __device__ __forceinline__ int Chunks() const { return chunks_; }  // of an item

 private:
  int parts_, m_blocks_, columns_, chunks_, hop_rows_, hop_columns_, row_, column_;
};

// kAlongR: rows of A's memory run along r, else along m. By one thread of each of kProducers warps,
// which take stages in turns: waiting, announcing and copying one stage is a chain of its own.
template <typename P, bool kAlongR>
__device__ __forceinline__ void ProduceProduct(int producer, const ProductMaps& maps,
                                               const ProductShape& shape, ProductWork<P> work,
                                               const Ring<P>& ring) {
  static_assert(P::kStages >= P::kProducers);
  const int a_bytes = kAlongR ? shape.a_rows * kProductDepth * 2 : P::kWeightBytes;
  Slot<P> slot;
  slot.Skip(producer);
  int others = producer;  // stages until the next of this producer
  typename ProductWork<P>::Place at;
  while (work.Take(at)) {
    int r = at.part * work.Chunks() * 128;
    for (int chunk = 0; chunk < work.Chunks(); ++chunk, r += 128) {
      const int halves = shape.Halves(r);
      for (int stage = 0; stage < halves * shape.terms; ++stage) {
        if (others-- != 0) continue;
        others = P::kProducers - 1;
        const int term = halves == 2 ? stage / 2 : stage;
        const int first = r + (halves == 2 ? stage % 2 * kProductDepth : 0);
        ring.empty[slot.index].Wait(slot.parity ^ 1);
        device::StageBarrier& full = ring.full[slot.index];
        full.ArriveExpect(a_bytes + P::kXBytes);
        std::byte* const to_a = ring.weights + slot.index * P::kWeightBytes;
        if constexpr (kAlongR) {
          device::TileCopy(to_a, maps.a[term], at.m, first, full);
        } else {
#pragma unroll
          for (int i = 0; i < P::kGroups; ++i) {
            device::TileCopy(to_a + i * P::kTileBytes, maps.a[term], first, at.m + 64 * i, full);
          }
        }
#pragma unroll
        for (int i = 0; i < P::kColumns / 64; ++i) {
          device::TileCopy(ring.x + slot.index * P::kXBytes + i * P::kTileBytes, maps.b, first,
                           at.column + 64 * i, full);
        }
        slot.Skip(P::kProducers);
      }
    }
  }
}

// A warp's sixteen rows of C, by way of its patch: a lane writes eight neighbours of one row.
template <typename P>
__device__ __forceinline__ void WriteProduct(const ProductShape& shape, const ProductOutput& out,
                                             int part, int m0, int c0,
                                             const float (&total)[P::kColumns / 2], float* patch) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t m = m0 + lane / 2;
#pragma unroll
  for (int piece = 0; piece < P::kColumns / 16; ++piece) {
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const int row = lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2;
      *reinterpret_cast<float2*>(patch + row * kPatchStride + column) = make_float2(
          arith::Canonical(total[piece * 8 + i]), arith::Canonical(total[piece * 8 + i + 1]));
    }
    __syncwarp();
    const int64_t c = c0 + piece * 16 + lane % 2 * 8;
    if (m < shape.m && c < shape.columns) {
      const auto* const v =
          reinterpret_cast<const float4*>(patch + lane / 2 * kPatchStride + lane % 2 * 8);
      const float4 low = v[0], high = v[1];
      const int64_t at = (part * shape.m + m) * shape.columns + c;
      for (float* const to : {out.f32, out.copy}) {
        if (to == nullptr) continue;
        reinterpret_cast<float4*>(to + at)[0] = low;
        reinterpret_cast<float4*>(to + at)[1] = high;
      }
      if (out.bf16 != nullptr) {
        using device::Bf16;
        *reinterpret_cast<uint4*>(out.bf16 + at) = make_uint4(
            device::PackPair<Bf16>(low.x, low.y), device::PackPair<Bf16>(low.z, low.w),
            device::PackPair<Bf16>(high.x, high.y), device::PackPair<Bf16>(high.z, high.w));
      }
    }
    __syncwarp();
  }
}

// The same in BF16 alone: copies of sixteen rows of kStoreColumns, swizzled as a tensor map's tiles
// are, go out while the warp works on.
template <typename P>
__device__ __forceinline__ void StoreProduct(const CUtensorMap& map, int m0, int c0,
                                             const float (&total)[P::kColumns / 2],
                                             std::byte* places) {
  static_assert(P::kColumns % kStoreColumns == 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Of the four tiles of sixteen columns: rows 0 .. 7 and 8 .. 15, then the columns behind.
  const int row = lane / 8 % 2 * 8 + lane % 8, word = lane / 16;
#pragma unroll
  for (int piece = 0; piece < P::kColumns / kStoreColumns; ++piece) {
    std::byte* const place = places + piece % P::kStores * kStoreBytes;
    if (lane == 0) device::BulkStoreWait<P::kStores - 1>();
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kStoreColumns / 16; ++i) {
      const float* const v = total + (piece * (kStoreColumns / 16) + i) * 8;
      uint32_t d[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) d[j] = device::PackPair<device::Bf16>(v[2 * j], v[2 * j + 1]);
      device::StoreTiles(place + row * 128 + ((2 * i + word) ^ (row % 8)) * 16, d);
    }
    device::FenceBeforeBulkStore();
    __syncwarp();
    if (lane == 0) {
      device::TileStore(map, m0, c0 + piece * kStoreColumns, place);
      device::BulkStoreCommit();
    }
  }
}

// What an item's totals begin with.
template <typename P>
__device__ __forceinline__ void StartProduct(const ProductShape& shape, const float* start, int m0,
                                             int c0, float (&total)[P::kColumns / 2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < P::kColumns / 2; ++i) total[i] = 0.0f;
  if (start == nullptr) return;
#pragma unroll
  for (int i = 0; i < P::kColumns / 2; i += 2) {
    const int64_t m = m0 + lane / 4 + i / 2 % 2 * 8;
    const int64_t c = c0 + i / 4 * 8 + lane % 4 * 2;
    if (m >= shape.m || c >= shape.columns) continue;
    const float2 value = *reinterpret_cast<const float2*>(start + m * shape.columns + c);
    total[i] = value.x, total[i + 1] = value.y;
  }
}

// One chunk of a warpgroup, into `part`.
template <typename P, bool kAlongR>
__device__ __forceinline__ void MultiplyChunk(int stages, const Ring<P>& ring, Slot<P>& slot,
                                              float (&part)[P::kColumns / 2]) {
  const int group = static_cast<int>(threadIdx.x) / 128 % P::kGroups;
  int last = 0;
  for (int stage = 0; stage < stages; ++stage) {
    ring.full[slot.index].Wait(slot.parity);
    const std::byte* const a_tile =
        ring.weights + slot.index * P::kWeightBytes + group * P::kTileBytes;
    const uint64_t a = kAlongR ? device::MakeSwizzledDescriptor(a_tile)
                               : device::MakeTransposedDescriptor(a_tile, P::kTileBytes);
    const uint64_t b =
        device::MakeTransposedDescriptor(ring.x + slot.index * P::kXBytes, P::kTileBytes);
    Pin(part);
    device::WgmmaFence();
#pragma unroll
    for (int step = 0; step < kProductDepth / 16; ++step) {
      device::WgmmaShared<kAlongR ? 0 : 1, 1>(part, a + step * (kAlongR ? 2 : 128), b + step * 128,
                                              stage != 0 || step != 0);
    }
    device::WgmmaCommit();
    if (stage != 0) {
      device::WgmmaWait<1>();
      Release(ring.empty[last]);
    }
    last = slot.index;
    slot.Next();
  }
  device::WgmmaWait<0>();
  Release(ring.empty[last]);
}

// Warpgroups take a block's chunks in turns: while one waits for its chain of steps, which is long
// for few columns, another has the next chunk. The totals go from hand to hand, in order.
template <typename P>
class ChunkTurns {
 public:
  __device__ __forceinline__ explicit ChunkTurns(const Ring<P>& ring)
      : totals_(reinterpret_cast<float4*>(ring.empty + P::kStages)),
        barriers_(reinterpret_cast<device::StageBarrier*>(totals_ + P::kM * P::kColumns / 4)),
        group_(static_cast<int>(threadIdx.x) / 128 % P::kGroups),
        turn_(static_cast<int>(threadIdx.x) / (32 * P::kStageWarps)) {
    totals_ += threadIdx.x % (32 * P::kStageWarps);
  }
  // By one thread, before the block meets.
  __device__ __forceinline__ void Init() const {
    for (int i = 0; i < P::kTurnBarriers; ++i) barriers_[i].Init(128);
  }
  // Whether the next chunk is this warpgroup's.
  __device__ __forceinline__ bool Take() {
    return P::kTurns == 1 || chunks_++ % P::kTurns == turn_;
  }
  // Before its chunk is added. `carried`: total is what the warpgroup ahead left.
  __device__ __forceinline__ void Begin(bool carried, float (&total)[P::kColumns / 2]) {
    if constexpr (P::kTurns > 1) {
      if (chunks_ > 1) {
        Barrier(turn_).WaitInBlock(parity_);
        parity_ ^= 1;
      }
      if (!carried) return;
#pragma unroll
      for (int i = 0; i < P::kColumns / 2; i += 4) {
        const float4 v = totals_[i / 4 * (32 * P::kStageWarps)];
        total[i] = v.x, total[i + 1] = v.y, total[i + 2] = v.z, total[i + 3] = v.w;
      }
    }
  }
  // Behind it.
  __device__ __forceinline__ void End(bool last_chunk, bool last_item,
                                      const float (&total)[P::kColumns / 2]) const {
    if constexpr (P::kTurns > 1) {
      if (!last_chunk) {
#pragma unroll
        for (int i = 0; i < P::kColumns / 2; i += 4) {
          totals_[i / 4 * (32 * P::kStageWarps)] =
              make_float4(total[i], total[i + 1], total[i + 2], total[i + 3]);
        }
      }
      if (!last_chunk || !last_item) Barrier(1 - turn_).Arrive();
    }
  }

 private:
  static_assert(P::kTurns <= 2);
  // At which the warpgroup of this turn waits for the other that has the same rows. All its threads
  // arrive.
  __device__ __forceinline__ device::StageBarrier& Barrier(int turn) const {
    return barriers_[turn * P::kGroups + group_];
  }
  float4* totals_;
  device::StageBarrier* barriers_;
  int group_, turn_, chunks_ = 0;
  uint32_t parity_ = 0;
};

// Rows of A's tiles that no copy brings are zero.
template <typename P>
__device__ __forceinline__ void ClearOperandA(const Ring<P>& ring) {
  for (int i = static_cast<int>(threadIdx.x); i < P::kStages * P::kWeightBytes / 16;
       i += P::kThreads) {
    reinterpret_cast<uint4*>(ring.weights)[i] = make_uint4(0, 0, 0, 0);
  }
  device::WgmmaFenceShared();
}

template <typename P, bool kAlongR>
__global__ void __launch_bounds__(P::kThreads, 1)
    K128ProductKernel(const __grid_constant__ ProductMaps maps, ProductShape shape,
                      ProductOutput out) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) std::byte shared[];
  device::AllowLaunchBehind();
  const Ring<P> ring(shared);
  if (kAlongR && shape.a_rows < P::kM) ClearOperandA<P>(ring);
  ChunkTurns<P> turns(ring);
  if (threadIdx.x == 0) turns.Init();
  ring.Init();
  ProductWork<P> work(shape);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp >= P::kConsumerWarps) {
    GiveRegisters<kProducerRegisters>();
    const int producer = warp - P::kConsumerWarps;
    if (producer < P::kProducers && threadIdx.x % 32 == 0) {
      ProduceProduct<P, kAlongR>(producer, maps, shape, work, ring);
    }
    device::WaitForLaunchAhead();
    return;
  }
  TakeRegisters<P::kConsumerRegisters>();
  const int m_of_tile = warp % P::kStageWarps * 16;
  Slot<P> slot;
  typename ProductWork<P>::Place at;
  while (work.Take(at)) {
    float total[P::kColumns / 2];
    StartProduct<P>(shape, out.start, at.m + m_of_tile, at.column, total);
    int r = at.part * work.Chunks() * 128;
    bool mine = true;
    for (int chunk = 0; chunk < work.Chunks(); ++chunk, r += 128) {
      const int stages = shape.terms * shape.Halves(r);
      mine = turns.Take();
      if (!mine) {
        slot.Skip(stages);
        continue;
      }
      float part[P::kColumns / 2];
      MultiplyChunk<P, kAlongR>(stages, ring, slot, part);
      turns.Begin(chunk != 0, total);
      AddPart(total, part);
      turns.End(chunk + 1 == work.Chunks(), work.Done(), total);
    }
    if (!mine) continue;
    if constexpr (P::kStores > 0) {
      StoreProduct<P>(maps.c, at.m + m_of_tile, at.column, total,
                      reinterpret_cast<std::byte*>(ring.Patch()));
    } else {
      WriteProduct<P>(shape, out, at.part, at.m + m_of_tile, at.column, total, ring.Patch());
    }
  }
  if (P::kStores > 0 && threadIdx.x % 32 == 0) device::BulkStoreWait<0>();
#else
  __trap();
#endif
}

}  // namespace rlk::linear
