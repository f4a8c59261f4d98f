// Host memory of tensors that stay. Each tensor has its own pages, fresh from the system: no bytes
// of an earlier owner can be in them, and freeing gives them back at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/registry/call.h"
#include "server/engine/device.h"

namespace rlk::server {

class HostResidents : public std::enable_shared_from_this<HostResidents> {
 public:
  // The memory says that it lies on `device`. With `poison` it is filled with 0xA5.
  static std::shared_ptr<HostResidents> Make(DeviceInfo device, bool poison = false);

  // RESOURCE_EXHAUSTED (kDeviceMemoryExhausted) when the system has no memory.
  absl::StatusOr<std::shared_ptr<ResidentMemory>> Allocate(int64_t bytes);

  int64_t bytes_in_use() const { return bytes_in_use_.load(std::memory_order_relaxed); }

 private:
  class Memory;
  HostResidents(DeviceInfo device, bool poison) : device_(std::move(device)), poison_(poison) {}

  const DeviceInfo device_;
  const bool poison_;
  std::atomic<int64_t> bytes_in_use_{0};
};

// Copies into, and looks at, memory that the host can address.
std::unique_ptr<Transfer> MakeHostTransfer();

}  // namespace rlk::server
