// The order of a packed x: what one stage of the wgmma kernel reads is one run of bytes, and each
// tensor-core step's operand B stands there as core matrices.
#pragma once

#include <cstdint>

#include "kernels/linear/bf16_forward.cuh"

namespace rlk::linear {

// Rows of a pass of the wgmma kernel: the tile for `rows` rows in all.
__host__ __device__ constexpr int TileRows(int64_t rows) {
  return rows <= 16 ? 16 : rows <= 32 ? 32 : 64;
}

// Bytes between core matrices of a step that are neighbours in the products and in the rows.
inline constexpr int kProductBytes = 128, kRowBytes = 256;
// Tensor-core steps of a stage.
inline constexpr int kStageSteps = kStageInputs / 16;

// packed: [tiles of rows][stages of K][kStageSteps][tile_rows / 8][2][8 rows][8 products].
struct PackedShape {
  int64_t tile_rows, tiles, stages;

  __host__ __device__ PackedShape(int64_t rows, int64_t inputs)
      : tile_rows(TileRows(rows)),
        tiles((rows + tile_rows - 1) / tile_rows),
        stages((inputs + kStageInputs - 1) / kStageInputs) {}
  __host__ __device__ int64_t StageElements() const { return tile_rows * kStageInputs; }
  __host__ __device__ int64_t Elements() const { return tiles * stages * StageElements(); }
};

}  // namespace rlk::linear
