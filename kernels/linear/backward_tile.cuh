// The tiled product of the backward: C[m, k] = sum over r of A[r, m] B[r, k] by FMA chains in
// FP32, r ascending. A thread has 8 x kThreadColumns outputs, a warp 32 x (8 kThreadColumns), a
// block two warps across; sixteen terms at a time come through shared memory while the sixteen
// before them are added.
#pragma once

#include <cstdint>

#include "kernels/linear/bf16_gradient.cuh"

namespace rlk::linear {

inline constexpr int kTileDepth = 16;

template <int kWarpRows, int kColumnsOfThread>
struct TilePlan {
  static constexpr int kRows = 32 * kWarpRows, kThreads = 64 * kWarpRows;
  static constexpr int kThreadColumns = kColumnsOfThread, kColumns = 16 * kThreadColumns;
  // Pieces of eight elements of a step of B that a thread brings; of A it is one.
  static constexpr int kPiecesB = kTileDepth * kColumns / 8 / kThreads;
};

template <typename P>
using ThreadSums = float[8][P::kThreadColumns];

template <typename P>
struct Tile {
  float a[kTileDepth][P::kRows];
  float b[kTileDepth][P::kColumns];
};

// Rows and columns of a thread's outputs within the block's.
template <typename P>
struct Place {
  int row0, column0;  // of the first

  __device__ Place() {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    row0 = warp / 2 * 32 + lane / 8 * 4;
    column0 = warp % 2 * (P::kColumns / 2) + lane % 8 * 4;
  }
  __device__ int Row(int i) const { return row0 + i / 4 * 16 + i % 4; }
  __device__ int Column(int j) const { return column0 + j / 4 * 32 + j % 4; }
};

__device__ __forceinline__ void Store8(const float (&v)[8], float* to) {
  reinterpret_cast<float4*>(to)[0] = make_float4(v[0], v[1], v[2], v[3]);
  reinterpret_cast<float4*>(to)[1] = make_float4(v[4], v[5], v[6], v[7]);
}

// `depth` of the tile's terms.
template <typename P>
__device__ __forceinline__ void AddProducts(const Tile<P>& tile, int depth, const Place<P>& place,
                                            ThreadSums<P>& sum) {
  const auto add = [&](int r) {
    float a[8], b[P::kThreadColumns];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float4 x = *reinterpret_cast<const float4*>(&tile.a[r][place.row0 + 16 * i]);
      a[4 * i] = x.x, a[4 * i + 1] = x.y, a[4 * i + 2] = x.z, a[4 * i + 3] = x.w;
    }
#pragma unroll
    for (int i = 0; i < P::kThreadColumns / 4; ++i) {
      const float4 y = *reinterpret_cast<const float4*>(&tile.b[r][place.column0 + 32 * i]);
      b[4 * i] = y.x, b[4 * i + 1] = y.y, b[4 * i + 2] = y.z, b[4 * i + 3] = y.w;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int j = 0; j < P::kThreadColumns; ++j) sum[i][j] = arith::Fma(a[i], b[j], sum[i][j]);
    }
  };
  if (depth >= kTileDepth) {
#pragma unroll
    for (int r = 0; r < kTileDepth; ++r) add(r);
  } else {
    // Terms that are not there add nothing, not even +0 to -0.
    for (int r = 0; r < depth; ++r) add(r);
  }
}

// B: rows of a [R, K] matrix of T (BF16 bits or float), columns [first, first + kColumns).
template <typename P, typename T>
class MatrixLoader {
 public:
  __device__ MatrixLoader(const void* from, int64_t inputs, int64_t first_column)
      : from_(static_cast<const T*>(from)), inputs_(inputs), column_(first_column + Column()) {}

  // Terms [r, min(r + 16, end)).
  __device__ __forceinline__ void Load(int64_t r, int64_t end) {
#pragma unroll
    for (int i = 0; i < P::kPiecesB; ++i) {
      const int64_t row = r + Depth(i);
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        const int64_t column = column_ + w * (8 / kWords);
        words_[i][w] = make_uint4(0, 0, 0, 0);
        if (row < end && column < inputs_) {
          words_[i][w] = __ldg(reinterpret_cast<const uint4*>(from_ + row * inputs_ + column));
        }
      }
    }
  }
  __device__ __forceinline__ void Store(Tile<P>& tile) const {
#pragma unroll
    for (int i = 0; i < P::kPiecesB; ++i) {
      float* const to = &tile.b[Depth(i)][Column()];
      if constexpr (kWords == 1) {
        float values[8];
        Unpack8(words_[i][0], values);
        Store8(values, to);
      } else {
        reinterpret_cast<uint4*>(to)[0] = words_[i][0];
        reinterpret_cast<uint4*>(to)[1] = words_[i][1];
      }
    }
  }

 private:
  static constexpr int kAcross = P::kColumns / 8;
  static constexpr int kWords = static_cast<int>(sizeof(T)) * 8 / 16;
  static __device__ int Column() { return static_cast<int>(threadIdx.x) % kAcross * 8; }
  static __device__ int Depth(int i) {
    return static_cast<int>(threadIdx.x) / kAcross + i * (P::kThreads / kAcross);
  }

  const T* from_;
  int64_t inputs_, column_;
  uint4 words_[P::kPiecesB][kWords];
};

// A of grad_weight: m is a channel, r a row of g.
template <typename P>
class ChannelLoader {
 public:
  __device__ ChannelLoader(const GradientSource& grad, bool vector, int64_t first_channel)
      : grad_(grad), vector_(vector), channel_(first_channel + Column()) {}

  __device__ __forceinline__ void Load(int64_t r, int64_t end) {
    const int64_t row = r + Depth();
    Gradient8(grad_, vector_, row, channel_, row < end ? grad_.outputs : 0, values_);
  }
  __device__ __forceinline__ void Store(Tile<P>& tile) const {
    Store8(values_, &tile.a[Depth()][Column()]);
  }

 private:
  static constexpr int kAcross = P::kRows / 8;
  static __device__ int Column() { return static_cast<int>(threadIdx.x) % kAcross * 8; }
  static __device__ int Depth() { return static_cast<int>(threadIdx.x) / kAcross; }

  const GradientSource& grad_;
  bool vector_;
  int64_t channel_;
  float values_[8];
};

// A of grad_x: m is a row of g, r a channel.
template <typename P>
class RowLoader {
 public:
  __device__ RowLoader(const GradientSource& grad, bool vector, int64_t first_row, int64_t rows)
      : grad_(grad), vector_(vector), row_(first_row + Row()), rows_(rows) {}

  __device__ __forceinline__ void Load(int64_t r, int64_t end) {
    Gradient8(grad_, vector_, row_, r + Depth(), row_ < rows_ ? end : 0, values_);
  }
  __device__ __forceinline__ void Store(Tile<P>& tile) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) tile.a[Depth() + i][Row()] = values_[i];
  }

 private:
  static __device__ int Row() { return static_cast<int>(threadIdx.x) % P::kRows; }
  static __device__ int Depth() { return static_cast<int>(threadIdx.x) / P::kRows * 8; }

  const GradientSource& grad_;
  bool vector_;
  int64_t row_, rows_;
  float values_[8];
};

// Terms [begin, end) into `sum`, sixteen at a time from `begin`. `after` is called with the index
// behind the terms that were added last. All threads of the block; tiles: two, in shared memory.
template <typename P, typename LoaderA, typename LoaderB, typename After>
__device__ __forceinline__ void AddTerms(LoaderA& a, LoaderB& b, int64_t begin, int64_t end,
                                         Tile<P> (&tiles)[2], const Place<P>& place,
                                         ThreadSums<P>& sum, const After& after) {
  a.Load(begin, end);
  b.Load(begin, end);
  a.Store(tiles[0]);
  b.Store(tiles[0]);
  __syncthreads();
  int now = 0;
  for (int64_t r = begin; r < end; r += kTileDepth) {
    const int64_t next = r + kTileDepth;
    if (next < end) {
      a.Load(next, end);
      b.Load(next, end);
    }
    AddProducts(tiles[now], static_cast<int>(min(int64_t{kTileDepth}, end - r)), place, sum);
    if (next < end) {
      a.Store(tiles[now ^ 1]);
      b.Store(tiles[now ^ 1]);
    }
    after(min(next, end));
    __syncthreads();
    now ^= 1;
  }
}

}  // namespace rlk::linear
