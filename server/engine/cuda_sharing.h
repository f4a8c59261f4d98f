// What a CUDA device does for arenas: memory that another process maps, and page-locks on host
// memory. Internal to the CUDA device; CUDA headers stay in the implementation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/engine/cuda_residents.h"
#include "server/engine/device.h"

namespace rlk::server {

// Thread-safe.
class CudaSharing {
 public:
  virtual ~CudaSharing() = default;
  static std::shared_ptr<CudaSharing> Make(DeviceInfo device, std::shared_ptr<CudaAccount> account);

  // As the methods of Device with these names.
  virtual absl::StatusOr<SharedMemory> Allocate(int64_t bytes) = 0;
  virtual std::string problem() = 0;
  virtual int64_t granularity() = 0;
  virtual int64_t bytes_in_use() const = 0;
  virtual absl::StatusOr<std::shared_ptr<const void>> LockPages(std::byte* data, int64_t bytes) = 0;
};

}  // namespace rlk::server
