// The order of a packed x: what one stage of a wgmma kernel reads is one run of bytes, and each
// tensor-core step's operand B stands there as core matrices.
#pragma once

#include <cstdint>

namespace rlk::linear {

// Inputs of a stage, and its tensor-core steps.
inline constexpr int kPackedInputs = 64;
inline constexpr int kStageSteps = kPackedInputs / 16;
// Bytes between core matrices of a step that are neighbours in the products and in the rows.
inline constexpr int kProductBytes = 128, kRowBytes = 256;

// Rows of a tile, for `rows` rows in all.
__host__ __device__ constexpr int TileRows(int64_t rows) {
  return rows <= 8 ? 8 : rows <= 16 ? 16 : rows <= 32 ? 32 : rows <= 64 ? 64 : 128;
}

// packed: [tiles of rows][all stages][kStageSteps][tile_rows / 8][2][8 rows][8 products], zero
// beyond the matrix. A launch takes `stages` of them from `first` on.
struct PackedShape {
  int64_t tile_rows, tiles, all_stages, first = 0, stages;

  // The stages are a multiple of `round`.
  __host__ __device__ PackedShape(int64_t rows, int64_t inputs, int64_t tile_rows, int64_t round)
      : tile_rows(tile_rows),
        tiles((rows + tile_rows - 1) / tile_rows),
        all_stages((inputs + kPackedInputs * round - 1) / (kPackedInputs * round) * round),
        stages(all_stages) {}
  __host__ __device__ int64_t Elements() const {
    return tiles * all_stages * tile_rows * kPackedInputs;
  }
};

// Of the contract h3-det-linear-bf16-mma-v1, and of bf16-k128-v1.
__host__ __device__ inline PackedShape MmaPackedShape(int64_t rows, int64_t inputs) {
  return {rows, inputs, TileRows(rows), 1};
}
__host__ __device__ inline PackedShape K128PackedShape(int64_t rows, int64_t inputs) {
  return {rows, inputs, TileRows(rows), 2};
}

}  // namespace rlk::linear
