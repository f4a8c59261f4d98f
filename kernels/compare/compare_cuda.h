// The comparison over device memory: the same numbers as on the host.
//
// A scan reads both tensors once: it sums the right side and finds the segments where bits differ.
// Only those are read again, for everything else. Equal tensors cost one pass at memory speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "kernels/compare/compare.h"
#include "kernels/core/stream_ref.h"

namespace rlk::compare {

// Device memory, and pinned host memory, that CompareCuda needs.
int64_t CompareScratchBytes(int64_t elements);

// As Accumulate over all elements of two contiguous tensors on the device, `wide` null. Blocks
// until the stream is done. `scratch` and `pinned` have at least CompareScratchBytes, 256-byte
// aligned. Any alignment of the tensors; 16 bytes is fast.
absl::StatusOr<Stats> CompareCuda(const Spec& spec, const void* left, const void* right,
                                  int64_t elements, std::span<std::byte> scratch,
                                  std::span<std::byte> pinned, StreamRef stream);

// The scan alone, enqueued: what CompareCuda costs where the tensors are equal.
absl::Status EnqueueScan(DType dtype, const void* left, const void* right, int64_t elements,
                         std::span<std::byte> scratch, StreamRef stream);

int64_t RowScratchBytes(int64_t rows);

// As CompareRows, for rows of less than 2^32 elements.
absl::StatusOr<RowStats> CompareRowsCuda(DType dtype, const void* left, const void* right,
                                         int64_t rows, int64_t columns, int rows_max,
                                         std::span<std::byte> scratch, std::span<std::byte> pinned,
                                         StreamRef stream);

}  // namespace rlk::compare
