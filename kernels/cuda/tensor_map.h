// How bulk tensor copies read a matrix (compute capability 9.0 and later).
#pragma once

#include <cuda.h>

#include <cstdint>

#include "absl/status/statusor.h"

namespace rlk::cuda {

// Elements of 16 bits in a row of a tile: 128 bytes.
inline constexpr int kTileColumns = 64;

// Tiles of `tile_rows` x kTileColumns elements of 16 bits of a matrix [rows, columns], 16-byte
// aligned, whose rows are `stride` elements apart, a multiple of 8. In shared memory, 1024-byte
// aligned, a row is 128 bytes and its 16-byte words are swizzled: word w of row r stands at w ^ (r
// % 8). Beyond the matrix a tile is zero. INTERNAL where the driver refuses.
absl::StatusOr<CUtensorMap> MatrixTiles(const void* matrix, int64_t rows, int64_t columns,
                                        int64_t stride, int tile_rows);

// Tiles of `tile_rows` x `tile_columns` elements, at most 256 each, of a contiguous matrix [rows,
// columns] of elements of 2 or 4 bytes; rows are a multiple of 16 bytes, in the matrix and in the
// tile. In shared memory, 128-byte aligned, the rows follow each other. Beyond the matrix a tile is
// zero. INTERNAL where the driver refuses.
absl::StatusOr<CUtensorMap> PlainTiles(const void* matrix, int element_bytes, int64_t rows,
                                       int64_t columns, int tile_rows, int tile_columns);

}  // namespace rlk::cuda
