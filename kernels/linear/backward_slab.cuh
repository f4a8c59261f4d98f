// grad_x of a slab of rows: the blocks share the chunks of all its columns, item by item, and write
// their sums to a ring in global memory; a warpgroup of each block folds some outputs, chunk by
// chunk. An item is a tile of backward_tile.cuh: of 128 rows one chunk, of fewer rows as many
// chunks as make 128.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/async_copy.cuh"
#include "kernels/device/published.cuh"
#include "kernels/linear/backward_feed.cuh"
#include "kernels/linear/backward_tile.h"
#include "kernels/linear/backward_walk.cuh"

namespace rlk::linear {

inline constexpr int kSlabChunk = 64;  // terms
inline constexpr int kFolders = 128;
inline constexpr int kSlabThreads = kBringers + kFolders + kAdders;
inline constexpr int kSlabAdderRegisters = 176, kSlabOtherRegisters = 80;

struct SlabWork {
  TiledBackwardInput problem;  // its rows end with the slab
  bool vector;
  int64_t first_row, first_column;
  int tiles;  // of kTileColumns
  int chunks;
  int ring;          // chunks that have a place
  int batch;         // chunks that are folded together
  int groups;        // what a warp folds at most
  uint32_t folding;  // warps
  float4* partial;   // [tiles][ring][kRows * kTileColumns / 4]
  // How many warps have written a tile's chunk, and how many have folded a batch.
  uint32_t* written;  // [tiles][chunks]
  uint32_t* folded;   // [chunks / batch]
};

// The place of a chunk's sums.
template <typename P>
__device__ __forceinline__ float4* PartialOf(const SlabWork& work, int64_t tile, int place) {
  return work.partial + (tile * work.ring + place) * (P::kRows * kTileColumns / 4);
}
__device__ __forceinline__ int TermsOf(const SlabWork& work, int64_t chunk) {
  return static_cast<int>(
      max(int64_t{0}, min(int64_t{kSlabChunk}, work.problem.shape.outputs - chunk * kSlabChunk)));
}

// By the threads that add. What a warp has written it says once the next item is under way, when
// its writes have arrived.
template <typename P>
__device__ __forceinline__ void AddSlab(const SlabWork& work, TileRing<P>& ring) {
  constexpr int kWords = kSums / 4;
  const int adder = static_cast<int>(threadIdx.x) - kBringers - kFolders, lane = adder % 32;
  const Place<P> place(adder);
  uint32_t* unsaid = nullptr;
  const auto say = [&] {
    __syncwarp();
    if (unsaid == nullptr || lane != 0) return;
    device::AddRelease(unsaid, 1);
  };
  Slot<P> slot;
  BlockWalk walk(work.tiles);
#pragma unroll 1
  for (; walk.row * P::kBeside < work.chunks; walk.Next()) {
    const int64_t chunk = walk.row * P::kBeside + place.beside;
    const int terms = TermsOf(work, chunk);
    ThreadSums sum = {};
#pragma unroll 1
    for (int at = 0; at < kSlabChunk; at += P::kStageTerms) {
      AddStage(ring, slot, terms - at, place, sum);
      if (at == 0) say();
    }
    unsaid = nullptr;
    if (terms == 0) continue;
    float4* const to = PartialOf<P>(work, walk.column, static_cast<int>(chunk) % work.ring) +
                       adder / 32 % place.kWarps * (kWords * 32) + lane;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const float* const v = &sum[i / 2][i % 2 * 4];
      __stcg(to + i * 32, make_float4(v[0], v[1], v[2], v[3]));
    }
    unsaid = work.written + walk.column * work.chunks + chunk;
  }
  say();
}

// The gradients of an item: eight channels of a row, or of two neighbours, a thread. Rows that are
// not there, whose sums nobody reads, are the last one.
template <typename P, Form kForm>
class SlabGradients {
 public:
  __device__ __forceinline__ SlabGradients(const SlabWork& work, int64_t chunk)
      : grad_(work.problem.grad),
        vector_(kForm != Form::kAny || work.vector),
        f32_(IsF32<kForm>(grad_.f32)),
        row_(min(work.first_row + Row() % P::kRows, work.problem.shape.rows - 1)),
        rows_(static_cast<int>(min(work.problem.shape.rows - row_, int64_t{kPieces}))),
        channel_((chunk + Row() / P::kRows) * kSlabChunk + Depth()) {
    row_bytes_ = RowElements(grad_) * ElementBytes(f32_);
    Find();
  }
  // The thread's channels of a row, where all of the chunk's lie together, or null.
  __device__ __forceinline__ const std::byte* Together(int i) const {
    return left_ < kSlabChunk - Depth() ? nullptr : next_ + (i < rows_ ? i * row_bytes_ : 0);
  }
  // The next terms; beyond the gradient's end they are zero, or some that are not added.
  __device__ __forceinline__ void Load(int /*count*/) {
    const std::byte* from = next_;
#pragma unroll
    for (int i = 0; i < kPieces; ++i, from += row_bytes_) {
      if (vector_ && next_ != nullptr && i < rows_) {
        pieces_[i].Load(from, f32_);
        continue;
      }
      pieces_[i].Clear();
      if (!vector_ && i < rows_ && channel_ < grad_.outputs) {
        pieces_[i].LoadEach(grad_, row_ + i, channel_);
      }
    }
    channel_ += P::kDepth;
    left_ -= P::kDepth;
    if (left_ <= 0) {
      Find();
    } else if (next_ != nullptr) {
      next_ += P::kDepth * ElementBytes(f32_);
    }
  }
  // To [terms][kTileRows].
  __device__ __forceinline__ void Store(float* to) const {
    StoreValues(pieces_, f32_ || !vector_, to);
  }
  static __device__ __forceinline__ void StoreValues(const Piece (&pieces)[P::kDepth / 8], bool f32,
                                                     float* to) {
    float v[kPieces][8];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) pieces[i].Values(f32, v[i]);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      float* const at = to + (Depth() + k) * kTileRows;
      if constexpr (kPieces == 2) {
        *reinterpret_cast<float2*>(at + Row()) = make_float2(v[1][k], v[0][k]);
      } else {
        at[Row() ^ 1] = v[0][k];
      }
    }
  }

 private:
  static constexpr int kPieces = P::kDepth / 8, kAcross = kTileRows / kPieces;
  static __device__ __forceinline__ int Row() { return Bringer() % kAcross * kPieces; }
  static __device__ __forceinline__ int Depth() { return Bringer() / kAcross * 8; }

  // Where the channels stand; only a step into another view asks again.
  __device__ __forceinline__ void Find() {
    next_ = nullptr;
    left_ = P::kDepth;
    if (channel_ >= grad_.outputs) return;
    const GradientPlace place = PlaceOf(grad_, row_, channel_);
    const int64_t left = grad_.view_width == 0 ? grad_.outputs - channel_
                                               : grad_.view_width - channel_ % grad_.view_width;
    left_ = static_cast<int>(min(left, int64_t{1} << 30));
    if (place.from == nullptr) return;
    next_ = static_cast<const std::byte*>(place.from) + place.at * ElementBytes(f32_);
  }

  const GradientSource& grad_;
  bool vector_, f32_;
  int64_t row_;
  int rows_;  // of the thread's that are there
  int64_t channel_;
  const std::byte* next_;
  int64_t row_bytes_;
  int left_;
  Piece pieces_[kPieces];
};

// The weights of an item, a column of tiles for each of its chunks.
template <typename P, bool kF32>
class SlabWeights {
 public:
  __device__ __forceinline__ SlabWeights(const SlabWork& work, int64_t tile, int64_t chunk) {
    const Shape& shape = work.problem.shape;
    int64_t column = work.first_column + tile * kTileColumns + Column();
    if (!kF32) column = min(column, shape.inputs - 8);  // beyond, nobody reads the sums
    row_bytes_ = shape.inputs * kBytes;
    whole_ = column + 8 <= shape.inputs;
    const int64_t left = shape.outputs - chunk * kSlabChunk - Depth();
    left_ = column < shape.inputs
                ? static_cast<int>(max(int64_t{0}, min(left, int64_t{P::kBeside * kSlabChunk})))
                : 0;
    next_ = static_cast<const std::byte*>(work.problem.weight.data) + column * kBytes +
            (chunk * kSlabChunk + Depth()) * row_bytes_;
  }
  // The thread's first row, where all of the item's are there, or null.
  __device__ __forceinline__ const std::byte* Together() const {
    return left_ < P::kBeside * kSlabChunk - Depth() ? nullptr : next_;
  }
  __device__ __forceinline__ int64_t RowBytes() const { return row_bytes_; }
  __device__ __forceinline__ void Load(int /*count*/) {
    const std::byte* from = next_;
#pragma unroll
    for (int s = 0; s < P::kBeside; ++s, from += (kSlabChunk - P::kDepth) * row_bytes_) {
#pragma unroll
      for (int i = 0; i < kPieces; ++i, from += 8 * row_bytes_) {
        pieces_[s][i].Clear();
        if (left_ > s * kSlabChunk + i * 8) pieces_[s][i].Load(from, kF32, !kF32 || whole_);
      }
    }
    next_ += P::kDepth * row_bytes_;
    left_ -= P::kDepth;
  }
  // To [terms][kBeside][kTileColumns].
  __device__ __forceinline__ void Store(float* to) const { StoreValues(pieces_, to); }
  static __device__ __forceinline__ void StoreValues(
      const Piece (&pieces)[P::kBeside][P::kDepth / 8], float* to) {
#pragma unroll
    for (int s = 0; s < P::kBeside; ++s) {
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        float v[8];
        pieces[s][i].Values(kF32, v);
        StorePairs(to + ((Depth() + i * 8) * P::kBeside + s) * kTileColumns + Column(), v);
      }
    }
  }

 private:
  static constexpr int kBytes = kF32 ? 4 : 2, kPieces = P::kDepth / 8;
  static __device__ __forceinline__ int Column() { return Bringer() % 16 * 8; }
  static __device__ __forceinline__ int Depth() { return Bringer() / 16; }

  const std::byte* next_;
  int64_t row_bytes_;
  int left_;  // rows, from the thread's first on
  bool whole_;
  Piece pieces_[P::kBeside][kPieces];
};

// An item of BF16 operands that lie together: nothing but loads, casts and stores. A scheduler
// seldom lets the warp that brings have its turn, so that each instruction counts.
template <typename P>
class WholeItem {
 public:
  static constexpr int kPieces = P::kDepth / 8;

  __device__ __forceinline__ WholeItem(const SlabGradients<P, Form::kBf16>& a,
                                       const SlabWeights<P, false>& b)
      : b_(b.Together()), row_bytes_(b.RowBytes()) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) a_[i] = a.Together(i);
  }
  // By whole warps.
  __device__ __forceinline__ bool There() const {
    return __all_sync(~0u, a_[0] != nullptr && b_ != nullptr) != 0;
  }
  // before_last: what is to be done before the last stage is there.
  template <typename BeforeLast>
  __device__ __forceinline__ void Bring(TileRing<P>& ring, Slot<P>& slot,
                                        const BeforeLast& before_last) {
    static_assert(P::kParts == 1);
    constexpr int kStages = kSlabChunk / P::kDepth;
    // The next stage is on its way, where registers hold two.
    constexpr int kAhead = P::kBeside <= 2 ? 1 : 0;
    Words words[kAhead + 1];
    if (kAhead == 1) Load(words[0]);
      // Unrolled there: 8 % faster than in a loop.
#pragma unroll(kAhead == 1 ? kStages : 1)
    for (int i = 0; i < kStages; i += kAhead + 1) {
#pragma unroll
      for (int j = 0; j <= kAhead; ++j) {
        const bool last = j == kAhead && i + j + 1 == kStages;
        if (kAhead == 0 || !last) Load(words[(j + kAhead) % (kAhead + 1)]);
        ring.empty[slot.index].WaitInBlock(slot.parity ^ 1);
        Store(words[j], ring.stages[slot.index].parts[0]);
        if (last) before_last();
        Brought(ring, slot);
      }
    }
  }

 private:
  struct Words {
    Piece a[kPieces], b[P::kBeside][kPieces];
  };

  // The next stage.
  __device__ __forceinline__ void Load(Words& words) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      words.a[i].Load(a_[i], false);
      a_[i] += P::kDepth * ElementBytes(false);
    }
#pragma unroll
    for (int s = 0; s < P::kBeside; ++s) {
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        words.b[s][i].Load(b_ + (s * kSlabChunk + i * 8) * row_bytes_, false);
      }
    }
    b_ += P::kDepth * row_bytes_;
  }
  static __device__ __forceinline__ void Store(const Words& words, TilePart<P>& part) {
    SlabGradients<P, Form::kBf16>::StoreValues(words.a, false, part.a[0]);
    SlabWeights<P, false>::StoreValues(words.b, part.b[0][0]);
  }

  const std::byte* a_[kPieces];
  const std::byte* b_;
  int64_t row_bytes_;
};

// An item to L2, while the one before it is added.
template <typename P, bool kF32>
__device__ __forceinline__ void PrefetchItem(const SlabWork& work, int64_t tile, int64_t chunk) {
  constexpr int kBytes = kF32 ? 4 : 2, kLine = 128 / kBytes, kLines = kTileColumns / kLine;
  const Shape& shape = work.problem.shape;
  const int64_t column = work.first_column + tile * kTileColumns + Bringer() % kLines * kLine;
  const int64_t first = chunk * kSlabChunk + Bringer() / kLines;
  const auto* from = static_cast<const std::byte*>(work.problem.weight.data) +
                     (first * shape.inputs + column) * kBytes;
#pragma unroll
  for (int i = 0; i < P::kBeside * kSlabChunk; i += kBringers / kLines) {
    if (column < shape.inputs && first + i < shape.outputs) device::Prefetch(from);
    from += kBringers / kLines * shape.inputs * kBytes;
  }
  const GradientSource& grad = work.problem.grad;
  const int64_t row = work.first_row + Bringer() % P::kRows;
  const int64_t channel = (chunk + Bringer() / P::kRows) * kSlabChunk;
  if (row >= shape.rows || channel >= grad.outputs) return;
  const GradientPlace place = PlaceOf(grad, row, channel);
  if (place.from == nullptr) return;
  device::Prefetch(static_cast<const std::byte*>(place.from) + place.at * ElementBytes(grad.f32));
}

// By the threads that bring. The last stage of an item waits until its sums have a place.
template <typename P, bool kF32, Form kGrad>
__device__ __forceinline__ void BringSlab(const SlabWork& work, TileRing<P>& ring) {
  Slot<P> slot;
  int room = work.ring;  // chunks that have a place
  BlockWalk walk(work.tiles), ahead = walk;
#pragma unroll 1
  for (; walk.row * P::kBeside < work.chunks; walk.Next()) {
    const int64_t chunk = walk.row * P::kBeside;
    ahead.Next();
    if (ahead.row * P::kBeside < work.chunks) {
      PrefetchItem<P, kF32>(work, ahead.column, ahead.row * P::kBeside);
    }
    SlabGradients<P, kGrad> a(work, chunk);
    SlabWeights<P, kF32> b(work, walk.column, chunk);
    const auto wait_for_room = [&] {
      if (threadIdx.x != 0) return;
      const int end = min(static_cast<int>(chunk) + P::kBeside, work.chunks);
      while (end > room) {
        const int batch = (end - 1 - work.ring) / work.batch;
        if (device::LoadAcquire(work.folded + batch) == work.folding) {
          room = (batch + 1) * work.batch + work.ring;
        }
      }
    };
    if constexpr (!kF32 && kGrad == Form::kBf16) {
      WholeItem<P> item(a, b);
      if (item.There()) {
        item.Bring(ring, slot, wait_for_room);
        continue;
      }
    }
#pragma unroll 1
    for (int left = kSlabChunk; left > 0; left -= P::kStageTerms) {
      BringStage(ring, slot, left, a, b);
      if (left == P::kStageTerms) wait_for_room();
      Brought(ring, slot);
    }
  }
}

}  // namespace rlk::linear
