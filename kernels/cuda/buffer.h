// Owner of device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"

namespace rlk::cuda {

class DeviceBuffer {
 public:
  // On the current device, at least 256-byte aligned. RESOURCE_EXHAUSTED when there is no room.
  // 0 bytes gives an empty buffer.
  static absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes);

  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceBuffer() { Free(); }

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // Waits for work of the device that may use the memory, as cudaFree does.
  void Free();
  // Gives the memory up without freeing it: for a context that is dead.
  void Leak();

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace rlk::cuda
