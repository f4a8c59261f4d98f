// How the operands of backward_tile.cuh come to a stage of its ring. Each of the kBringers threads,
// the first of the block, moves pieces of eight elements that lie together in memory: it loads them
// for one stage while the stage before is added, and stores them as FP32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/linear/backward_tile.cuh"
#include "kernels/linear/bf16_gradient.cuh"

namespace rlk::linear {

__device__ __forceinline__ int Bringer() { return static_cast<int>(threadIdx.x); }

// What a kernel is compiled for: pieces that lie together in one dtype, or whatever comes.
enum class Form { kBf16, kF32, kAny };

template <Form kForm>
__device__ __forceinline__ bool IsF32(bool f32) {
  return kForm == Form::kAny ? f32 : kForm == Form::kF32;
}

// Eight elements on their way: BF16 in the first word, FP32 in both.
struct Piece {
  uint4 words[2];

  __device__ __forceinline__ void Clear() { words[0] = words[1] = make_uint4(0, 0, 0, 0); }
  // From 16-byte aligned memory; the second half of FP32 elements only if it is `whole`.
  __device__ __forceinline__ void Load(const std::byte* from, bool f32, bool whole = true) {
    words[0] = __ldg(reinterpret_cast<const uint4*>(from));
    if (f32 && whole) words[1] = __ldg(reinterpret_cast<const uint4*>(from) + 1);
  }
  // One by one, as FP32, from elements that do not lie together.
  __device__ __forceinline__ void LoadEach(const GradientSource& source, int64_t row,
                                           int64_t channel) {
    float v[8] = {};
#pragma unroll 1
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int k = 0; k < 7; ++k) v[k] = v[k + 1];
      v[7] = channel + i < source.outputs ? Gradient(source, row, channel + i) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      words[i] = make_uint4(__float_as_uint(v[4 * i]), __float_as_uint(v[4 * i + 1]),
                            __float_as_uint(v[4 * i + 2]), __float_as_uint(v[4 * i + 3]));
    }
  }
  __device__ __forceinline__ void Values(bool f32, float (&v)[8]) const {
    if (!f32) {
      Unpack8(words[0], v);
      return;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      v[4 * i] = __uint_as_float(words[i].x), v[4 * i + 1] = __uint_as_float(words[i].y);
      v[4 * i + 2] = __uint_as_float(words[i].z), v[4 * i + 3] = __uint_as_float(words[i].w);
    }
  }
};

inline constexpr int kFeedTerms = 16;  // of a part

inline __host__ __device__ int ElementBytes(bool f32) { return f32 ? 4 : 2; }

// Elements 2 i and 2 i + 1 change places.
__device__ __forceinline__ void StorePairs(float* to, const float (&v)[8]) {
  auto* const at = reinterpret_cast<float4*>(to);
  at[0] = make_float4(v[1], v[0], v[3], v[2]);
  at[1] = make_float4(v[5], v[4], v[7], v[6]);
}

// Terms are rows of memory: columns [first, first + kSide) of a matrix, or channels of a gradient.
template <int kSide, Form kForm = Form::kAny>
class ColumnLoader {
 public:
  // A matrix whose number of columns is a multiple of eight, or of four FP32 elements, from `row`
  // on.
  __device__ __forceinline__ ColumnLoader(const Operand& matrix, int64_t columns, int64_t first,
                                          int64_t row = 0)
      : f32_(IsF32<kForm>(matrix.dtype == DType::kF32)) {
    const int64_t column = first + Column();
    inside_ = column < columns;
    whole_ = column + 8 <= columns;
    together_ = whole_;
    const int64_t row_bytes = columns * ElementBytes(f32_);
    step_bytes_ = kStep * row_bytes;
    next_ = static_cast<const std::byte*>(matrix.data) + column * ElementBytes(f32_) +
            (row + Depth(0)) * row_bytes;
  }
  __device__ __forceinline__ ColumnLoader(const GradientSource& grad, bool vector, int64_t first)
      : f32_(IsF32<kForm>(grad.f32)), channel_(first + Column()) {
    if (kForm == Form::kAny && !vector) each_ = &grad;
    const GradientPlace place = PlaceOf(grad, 0, channel_ < grad.outputs ? channel_ : 0);
    inside_ = channel_ < grad.outputs && place.from != nullptr;
    together_ = vector && inside_;
    const int64_t row_elements = RowElements(grad);
    step_bytes_ = kStep * row_elements * ElementBytes(f32_);
    next_ = static_cast<const std::byte*>(place.from) +
            (place.at + Depth(0) * row_elements) * ElementBytes(f32_);
  }

  // The next terms, at most `count` of them.
  __device__ __forceinline__ void Load(int count) {
    const std::byte* from = next_;
    if (count >= kFeedTerms && together_) {
#pragma unroll
      for (int i = 0; i < kPieces; ++i, from += step_bytes_) pieces_[i].Load(from, F32());
    } else {
#pragma unroll
      for (int i = 0; i < kPieces; ++i, from += step_bytes_) {
        pieces_[i].Clear();
        if (Depth(i) >= count) continue;
        if (kForm == Form::kAny && each_ != nullptr) {
          pieces_[i].LoadEach(*each_, row_ + Depth(i), channel_);
        } else if (inside_) {
          pieces_[i].Load(from, F32(), whole_);
        }
      }
    }
    next_ = from;
    row_ += kFeedTerms;
  }
  // To [terms][kSide].
  __device__ __forceinline__ void Store(float* to) const {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      float v[8];
      pieces_[i].Values(F32() || (kForm == Form::kAny && each_ != nullptr), v);
      StorePairs(to + Depth(i) * kSide + Column(), v);
    }
  }

 private:
  static constexpr int kAcross = kSide / 8, kStep = kBringers / kAcross;
  static constexpr int kPieces = kFeedTerms / kStep;
  __device__ __forceinline__ bool F32() const { return IsF32<kForm>(f32_); }
  static __device__ __forceinline__ int Column() { return Bringer() % kAcross * 8; }
  static __device__ __forceinline__ int Depth(int i) { return Bringer() / kAcross + i * kStep; }

  bool f32_, inside_, whole_ = true;
  bool together_;          // all pieces are there, in whole words
  const std::byte* next_;  // piece 0 of the next terms
  int64_t step_bytes_;     // between pieces; kPieces of them are kFeedTerms rows
  // A gradient whose channels do not lie together.
  const GradientSource* each_ = nullptr;
  int64_t channel_ = 0, row_ = 0;
  Piece pieces_[kPieces];
};

// Terms are channels of a gradient, of rows [first, first + kSide). A thread has eight channels of
// neighbouring rows, whose elements it stores together.
template <int kSide, Form kForm = Form::kAny>
class RowLoader {
 public:
  __device__ __forceinline__ RowLoader(const GradientSource& grad, bool vector, int64_t first,
                                       int64_t rows, int64_t channel)
      : grad_(grad),
        vector_(kForm != Form::kAny || vector),
        f32_(IsF32<kForm>(grad.f32)),
        row_(first + Row()),
        rows_(static_cast<int>(max(int64_t{0}, min(rows - row_, int64_t{kPieces})))),
        channel_(channel + Depth()) {
    const int64_t row_elements = RowElements(grad);
    row_bytes_ = row_elements * ElementBytes(f32_);
    Find();
  }

  // The next terms, at most `count` of them; where that is not a multiple of eight, more may come
  // that are not added.
  __device__ __forceinline__ void Load(int count) {
    const std::byte* from = next_;
    if (Vector() && next_ != nullptr && rows_ == kPieces && Depth() < count) {
#pragma unroll
      for (int i = 0; i < kPieces; ++i, from += row_bytes_) pieces_[i].Load(from, F32());
    } else {
#pragma unroll
      for (int i = 0; i < kPieces; ++i, from += row_bytes_) {
        pieces_[i].Clear();
        if (i >= rows_ || Depth() >= count) continue;
        if (!Vector()) {
          pieces_[i].LoadEach(grad_, row_ + i, channel_);
        } else if (next_ != nullptr) {
          pieces_[i].Load(from, F32());
        }
      }
    }
    channel_ += kFeedTerms;
    left_ -= kFeedTerms;
    if (left_ <= 0) {
      Find();
    } else if (next_ != nullptr) {
      next_ += kFeedTerms * ElementBytes(F32());
    }
  }
  // To [terms][kSide].
  __device__ __forceinline__ void Store(float* to) const {
    float v[kPieces][8];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) pieces_[i].Values(F32() || !Vector(), v[i]);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      *reinterpret_cast<float2*>(to + (Depth() + k) * kSide + Row()) =
          make_float2(v[1][k], v[0][k]);
    }
  }

 private:
  static constexpr int kAcross = kBringers * 8 / kFeedTerms, kPieces = kSide / kAcross;
  static_assert(kPieces == 2);
  static __device__ __forceinline__ int Row() { return Bringer() % kAcross * kPieces; }
  static __device__ __forceinline__ int Depth() { return Bringer() / kAcross * 8; }

  __device__ __forceinline__ bool F32() const { return IsF32<kForm>(f32_); }
  __device__ __forceinline__ bool Vector() const { return kForm != Form::kAny || vector_; }
  // Where the channels stand; only a step into another view asks again.
  __device__ __forceinline__ void Find() {
    next_ = nullptr;
    left_ = kFeedTerms;
    if (channel_ >= grad_.outputs || rows_ == 0) return;
    const GradientPlace place = PlaceOf(grad_, row_, channel_);
    const int64_t left = grad_.view_width == 0 ? grad_.outputs - channel_
                                               : grad_.view_width - channel_ % grad_.view_width;
    left_ = static_cast<int>(min(left, int64_t{1} << 30));
    if (place.from == nullptr) return;
    next_ = static_cast<const std::byte*>(place.from) + place.at * ElementBytes(F32());
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

}  // namespace rlk::linear
