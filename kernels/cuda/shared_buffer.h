// Device memory that another process can map: an allocation of the driver's virtual memory
// management, exported as a POSIX descriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rlk::cuda {

class SharedBuffer {
 public:
  // Zeroed memory of the device, mapped here, on a thread that has the device; `bytes` is rounded
  // up to the granularity. RESOURCE_EXHAUSTED when there is no room.
  static absl::StatusOr<std::unique_ptr<SharedBuffer>> Allocate(int ordinal, int64_t bytes);
  // Unmaps it. The memory goes with the last process that maps it.
  ~SharedBuffer();
  SharedBuffer(const SharedBuffer&) = delete;
  SharedBuffer& operator=(const SharedBuffer&) = delete;

  // What sizes are rounded up to.
  static absl::StatusOr<int64_t> Granularity(int ordinal);

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // A new descriptor of the memory, which the caller closes.
  absl::StatusOr<int> Export() const;
  // The context is dead.
  void Leak() { leaked_ = true; }

 private:
  SharedBuffer() = default;
  absl::Status Map(int ordinal);

  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  unsigned long long handle_ = 0;
  bool created_ = false, mapped_ = false, leaked_ = false;
};

// Host memory, page-locked for every context of the process until it goes.
class PageLock {
 public:
  static absl::StatusOr<std::unique_ptr<PageLock>> Lock(std::byte* data, int64_t bytes);
  ~PageLock();
  PageLock(const PageLock&) = delete;
  PageLock& operator=(const PageLock&) = delete;
  void Leak() { data_ = nullptr; }

 private:
  explicit PageLock(std::byte* data) : data_(data) {}
  std::byte* data_;
};

}  // namespace rlk::cuda
