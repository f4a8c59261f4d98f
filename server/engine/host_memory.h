// Host memory of calls: aligned blocks, and payloads that arrive in pieces made one block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/tensor_view.h"
#include "kernels/registry/call.h"

namespace rlk::server {

// Host blocks start on a cache line, which is also the widest vector.
inline constexpr int64_t kHostAlignment = 64;

constexpr int64_t AlignUp(int64_t value, int64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// Gives out aligned blocks and keeps some of the large ones for the next call: fresh memory costs
// a page fault for every 4 KiB, which is several times the cost of writing it. Thread-safe; blocks
// may be dropped on any thread and may outlive the cache.
class HostMemory : public std::enable_shared_from_this<HostMemory> {
 public:
  // At most so many bytes lie idle.
  static std::shared_ptr<HostMemory> Make(int64_t idle_bytes_max);
  ~HostMemory();

  // A block of at least `bytes`, aligned to kHostAlignment, contents undefined. Null when the
  // system has no memory.
  std::shared_ptr<std::byte> Allocate(int64_t bytes);

  int64_t idle_bytes() const;

 private:
  struct Block {
    std::byte* data;
    int64_t bytes;
  };

  explicit HostMemory(int64_t idle_bytes_max) : idle_bytes_max_(idle_bytes_max) {}
  void Recycle(Block block);

  const int64_t idle_bytes_max_;
  mutable std::mutex mutex_;
  std::vector<Block> idle_;  // oldest first
  int64_t idle_bytes_ = 0;
};

// Copies the pieces, in order, to `to`.
void Gather(const HostBytes& bytes, std::byte* to);

// The only piece when it lies at the alignment, otherwise null. Null for an empty payload too.
const std::byte* InPlace(const HostBytes& bytes, int64_t alignment);

// One block with the payload: in place, or a copy in `copy`. Null data with a size above 0 means
// that there was no memory.
struct Contiguous {
  const std::byte* data = nullptr;
  std::shared_ptr<const void> copy;
};
Contiguous MakeContiguous(const HostBytes& bytes, int64_t alignment);

// An owned copy in one aligned block, always.
absl::StatusOr<HostBytes> CopyBytes(const HostBytes& bytes, int64_t alignment);

// RESOURCE_EXHAUSTED (kBytesExhausted).
absl::Status HostMemoryError(int64_t bytes);

}  // namespace rlk::server
