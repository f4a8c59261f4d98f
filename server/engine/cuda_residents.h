// Memory of tensors that stay on a CUDA device, and the ways of their bytes in and out. Internal to
// the CUDA device; CUDA headers stay in the implementation.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/registry/call.h"
#include "server/engine/device.h"

namespace rlk::server {

// What lanes and resident tensors of one device share: its health, and how much of its memory the
// server takes.
struct CudaAccount {
  virtual ~CudaAccount() = default;

  int ordinal = 0;
  int64_t bytes_max = 0;
  std::atomic<bool> healthy{true};
  std::atomic<int64_t> bytes_in_use{0};

  // Passes a status on; the first that says the device is lost takes it out of rotation.
  virtual absl::Status Note(absl::Status status) = 0;

  // False, and nothing taken, where the bound does not hold it. `bytes` may be negative.
  bool Take(int64_t bytes) {
    int64_t present = bytes_in_use.load(std::memory_order_relaxed);
    do {
      if (bytes > bytes_max - present) return false;
    } while (!bytes_in_use.compare_exchange_weak(present, present + bytes));
    return true;
  }
  void Give(int64_t bytes) { bytes_in_use.fetch_sub(bytes); }
  // RESOURCE_EXHAUSTED (kDeviceMemoryExhausted).
  static absl::Status Exhausted(int64_t bytes, int64_t free);
};

// Thread-safe.
class CudaResidents {
 public:
  virtual ~CudaResidents() = default;
  static std::shared_ptr<CudaResidents> Make(DeviceInfo device,
                                             std::shared_ptr<CudaAccount> account, bool poison);

  virtual absl::StatusOr<std::shared_ptr<ResidentMemory>> Allocate(int64_t bytes) = 0;
  virtual absl::StatusOr<std::unique_ptr<Transfer>> NewTransfer() = 0;
  virtual int64_t bytes_in_use() const = 0;
  // As Device::ReleaseIdleMemory.
  virtual void ReleaseIdle() = 0;
};

}  // namespace rlk::server
