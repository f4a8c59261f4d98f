#include <algorithm>
#include <cstring>

#include "kernels/compare/common.cuh"
#include "kernels/compare/compare_cuda.h"
#include "kernels/device/warp.cuh"

namespace rlk::compare {
namespace {

struct ColumnTotals {
  unsigned long long first, last, any, all;
};

// One warp a row. counts: [rows], elements that differ.
template <typename Bits>
__global__ void __launch_bounds__(kThreads)
    RowsKernel(const Bits* __restrict__ left, const Bits* __restrict__ right, int64_t rows,
               int64_t columns, uint32_t* __restrict__ counts, ColumnTotals* __restrict__ totals) {
  const int lane = threadIdx.x % kLanes;
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  if (row >= rows) return;
  const Bits* const a = left + row * columns;
  const Bits* const b = right + row * columns;
  uint32_t count = 0;
  unsigned long long first = ~0ull, last = 0, any = 0, all = ~0ull;
#pragma unroll 4
  for (int64_t c = lane; c < columns; c += kLanes) {
    if (a[c] == b[c]) continue;
    const auto column = static_cast<unsigned long long>(c);
    ++count;
    first = column < first ? column : first;
    last = column;
    any |= column;
    all &= column;
  }
  const uint32_t row_count = device::WarpSum(count);
  if (lane == 0) counts[row] = row_count;
  if (count == 0) return;
  atomicMin(&totals->first, first);
  atomicMax(&totals->last, last);
  atomicOr(&totals->any, any);
  atomicAnd(&totals->all, all);
}

}  // namespace

int64_t RowScratchBytes(int64_t rows) {
  return kAlignment + AlignUp(rows * static_cast<int64_t>(sizeof(uint32_t)));
}

absl::StatusOr<RowStats> CompareRowsCuda(DType dtype, const void* left, const void* right,
                                         int64_t rows, int64_t columns, int rows_max,
                                         std::span<std::byte> scratch, std::span<std::byte> pinned,
                                         StreamRef stream) {
  const int64_t bytes = RowScratchBytes(rows);
  if (std::min(scratch.size(), pinned.size()) < static_cast<size_t>(bytes) ||
      columns > int64_t{UINT32_MAX}) {
    return Broken("too little memory for the rows");
  }
  RowStats stats;
  if (rows == 0 || columns == 0) return stats;
  const ColumnTotals none = {~0ull, 0, 0, ~0ull};
  const cudaStream_t handle = cuda::CudaStream(stream);
  std::memcpy(pinned.data(), &none, sizeof(none));
  RLK_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(scratch.data(), pinned.data(), sizeof(none), cudaMemcpyHostToDevice, handle));
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(rows, kWarps));
  RLK_RETURN_IF_ERROR(WithKnownFormat(dtype, [&](auto format) {
    using Bits = typename decltype(format)::Bits;
    return cuda::Launch(RowsKernel<Bits>, blocks, kThreads, handle, static_cast<const Bits*>(left),
                        static_cast<const Bits*>(right), rows, columns,
                        reinterpret_cast<uint32_t*>(scratch.data() + kAlignment),
                        reinterpret_cast<ColumnTotals*>(scratch.data()));
  }));
  RLK_RETURN_IF_ERROR(Fetch(0, bytes, scratch, pinned, stream));
  ColumnTotals totals;
  std::memcpy(&totals, pinned.data(), sizeof(totals));
  const auto* counts = reinterpret_cast<const uint32_t*>(pinned.data() + kAlignment);
  for (int64_t row = 0; row < rows; ++row) {
    if (counts[row] > 0) AddRow({row, int64_t{counts[row]}}, rows_max, stats);
  }
  if (stats.mismatched == 0) return stats;
  stats.first_column = static_cast<int64_t>(totals.first);
  stats.last_column = static_cast<int64_t>(totals.last);
  stats.column_or = totals.any;
  stats.column_and = totals.all;
  return stats;
}

}  // namespace rlk::compare
