// How the blocks of a grid share the items of a table: item by item, rows of the table one after
// the other, so that blocks which run together share operands.
#pragma once

#include <cstdint>

namespace rlk::linear {

// The items of a block: every gridDim.x-th.
class BlockWalk {
 public:
  int64_t row, column;

  __device__ __forceinline__ explicit BlockWalk(int64_t columns) : columns_(columns) {
    row = int64_t{blockIdx.x} / columns;
    column = int64_t{blockIdx.x} % columns;
    row_step_ = int64_t{gridDim.x} / columns;
    column_step_ = int64_t{gridDim.x} % columns;
  }
  __device__ __forceinline__ void Next() {
    row += row_step_;
    column += column_step_;
    if (column >= columns_) {
      column -= columns_;
      ++row;
    }
  }

 private:
  int64_t columns_, row_step_, column_step_;
};

}  // namespace rlk::linear
