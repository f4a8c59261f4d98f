// Device memory that is given out again without asking the driver: an allocation of a size that was
// freed before takes microseconds, where cudaMalloc and cudaFree wait for the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/stream.h"

namespace rlk::cuda {

// Thread-safe but for its creation and end; its device is current where its methods are called.
// Where a device has no memory pools it allocates as DeviceBuffer does.
class MemoryPool {
 public:
  static absl::StatusOr<MemoryPool> Create(int ordinal);

  MemoryPool() = default;
  MemoryPool(MemoryPool&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), stream_(std::move(other.stream_)) {}
  MemoryPool& operator=(MemoryPool&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~MemoryPool();

  // At least 256-byte aligned, and ready for every stream when this returns. RESOURCE_EXHAUSTED
  // where there is no room; what is kept for later is given up first. 0 bytes: null.
  absl::StatusOr<std::byte*> Allocate(int64_t bytes);
  // After everything that used the memory is done; waits for nothing.
  void Free(std::byte* data);
  // Gives what is kept back to the device.
  void Trim();
  // Of memory that nobody has.
  int64_t bytes_kept() const;
  // For a context that is dead.
  void Leak();

 private:
  absl::StatusOr<std::byte*> TryAllocate(int64_t bytes);

  cudaMemPool_t pool_ = nullptr;
  Stream stream_;
};

}  // namespace rlk::cuda
