#include "kernels/cuda/tensor_map.h"

#include <cudaTypedefs.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "kernels/cuda/driver_function.h"

namespace rlk::cuda {
namespace {

absl::StatusOr<PFN_cuTensorMapEncodeTiled_v12000> Encoder() {
  PFN_cuTensorMapEncodeTiled_v12000 encode = nullptr;
  RLK_RETURN_IF_ERROR(FindDriverFunction("cuTensorMapEncodeTiled", 12000, &encode));
  return encode;
}

struct Tiles {
  CUtensorMapDataType type;
  int64_t row_bytes;
  cuuint32_t rows, columns;
  CUtensorMapSwizzle swizzle;
};

absl::StatusOr<CUtensorMap> Encode(const void* matrix, int64_t rows, int64_t columns,
                                   const Tiles& tiles) {
  static const absl::StatusOr<PFN_cuTensorMapEncodeTiled_v12000> encode = Encoder();
  if (!encode.ok()) return encode.status();
  CUtensorMap map;
  const cuuint64_t size[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t row_bytes[1] = {static_cast<cuuint64_t>(tiles.row_bytes)};
  const cuuint32_t box[2] = {tiles.columns, tiles.rows};
  const cuuint32_t step[2] = {1, 1};
  const CUresult result =
      (*encode)(&map, tiles.type, 2, const_cast<void*>(matrix), size, row_bytes, box, step,
                CU_TENSOR_MAP_INTERLEAVE_NONE, tiles.swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return map;
  return absl::InternalError(absl::StrCat("cuTensorMapEncodeTiled: error ", int{result}, " for [",
                                          rows, ", ", columns, "], tiles of ", tiles.rows, " x ",
                                          tiles.columns));
}

}  // namespace

absl::StatusOr<CUtensorMap> MatrixTiles(const void* matrix, int64_t rows, int64_t columns,
                                        int64_t stride, int tile_rows) {
  return Encode(matrix, rows, columns,
                {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, stride * 2, static_cast<cuuint32_t>(tile_rows),
                 kTileColumns, CU_TENSOR_MAP_SWIZZLE_128B});
}

absl::StatusOr<CUtensorMap> PlainTiles(const void* matrix, int element_bytes, int64_t rows,
                                       int64_t columns, int tile_rows, int tile_columns) {
  return Encode(
      matrix, rows, columns,
      {element_bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16 : CU_TENSOR_MAP_DATA_TYPE_UINT32,
       columns * element_bytes, static_cast<cuuint32_t>(tile_rows),
       static_cast<cuuint32_t>(tile_columns), CU_TENSOR_MAP_SWIZZLE_NONE});
}

}  // namespace rlk::cuda
