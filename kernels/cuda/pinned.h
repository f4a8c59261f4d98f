// Page-locked host memory, and a pool of it for results that outlive the call that made them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rlk::cuda {

class PinnedBuffer {
 public:
  // Page-locked for every context of the process. RESOURCE_EXHAUSTED when there is no room.
  static absl::StatusOr<PinnedBuffer> Allocate(int64_t bytes);

  PinnedBuffer() = default;
  PinnedBuffer(PinnedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~PinnedBuffer();

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  void Leak();

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Blocks that are taken by the executor and come back from any thread when their last user is gone.
// A block that does not fit under `cached_bytes_max` is freed instead of kept. Thread-safe.
class PinnedPool : public std::enable_shared_from_this<PinnedPool> {
 public:
  static std::shared_ptr<PinnedPool> Create(int64_t cached_bytes_max);

  // A block of at least `bytes`; the smallest free one that fits, or a new one.
  absl::StatusOr<std::shared_ptr<PinnedBuffer>> Take(int64_t bytes);
  // Adds a free block.
  absl::Status Reserve(int64_t bytes);
  // The context is dead: whatever is kept or comes back is leaked.
  void LeakAll();

 private:
  explicit PinnedPool(int64_t cached_bytes_max) : cached_bytes_max_(cached_bytes_max) {}
  std::shared_ptr<PinnedBuffer> Lend(PinnedBuffer block);
  void GiveBack(PinnedBuffer block);

  const int64_t cached_bytes_max_;
  std::mutex mutex_;
  bool leak_ = false;
  int64_t cached_bytes_ = 0;
  std::vector<PinnedBuffer> free_;
};

}  // namespace rlk::cuda
