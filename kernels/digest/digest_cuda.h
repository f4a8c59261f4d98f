// `xxh3-tree4k-v1` over device memory: all levels but the root, which the host makes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "kernels/core/dtype.h"
#include "kernels/core/stream_ref.h"

namespace rlk {

// Device memory that the nodes of all levels need.
int64_t DigestScratchBytes(int64_t bytes);

// Enqueues the digest of `bytes` (> 0) contiguous bytes at `data`. Returns where, inside `scratch`
// (device memory, 16-byte aligned, at least DigestScratchBytes), the 16 bytes of the last node will
// lie; DigestRoot makes the root of them. Any alignment of `data`; 16 bytes is fast.
absl::StatusOr<const std::byte*> EnqueueDigest(const void* data, int64_t bytes,
                                               std::span<std::byte> scratch, StreamRef stream);

// Device memory that the nodes and the digests of all rows need.
int64_t RowDigestScratchBytes(int64_t rows, int64_t row_bytes);

// Enqueues the digest of each of `rows` (> 0) rows of `row_bytes` (> 0) contiguous bytes at `data`,
// as tensors of shape [columns]. Returns where, inside `scratch` (16-byte aligned, at least
// RowDigestScratchBytes), their 16 bytes each will lie, in order. Any alignment of `data` and any
// row_bytes; multiples of 16 are fast.
absl::StatusOr<const std::byte*> EnqueueRowDigests(DType dtype, int64_t columns, const void* data,
                                                   int64_t rows, int64_t row_bytes,
                                                   std::span<std::byte> scratch, StreamRef stream);

}  // namespace rlk
