// `xxh3-tree4k-v1` over device memory: all levels but the root, which the host makes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "kernels/core/stream_ref.h"

namespace rlk {

// Device memory that the nodes of all levels need.
int64_t DigestScratchBytes(int64_t bytes);

// Enqueues the digest of `bytes` (> 0) contiguous bytes at `data`. Returns where, inside `scratch`
// (device memory, 16-byte aligned, at least DigestScratchBytes), the 16 bytes of the last node will
// lie; DigestRoot makes the root of them. Any alignment of `data`; 16 bytes is fast.
absl::StatusOr<const std::byte*> EnqueueDigest(const void* data, int64_t bytes,
                                               std::span<std::byte> scratch, StreamRef stream);

}  // namespace rlk
