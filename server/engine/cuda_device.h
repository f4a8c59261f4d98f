// CUDA devices behind the seam. In a build without CUDA, and on a host without a driver, the probe
// says why there is none and nothing else is called.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/engine/device.h"

namespace rlk::server {

struct CudaProbe {
  // Empty when none can be used; `reason` then says why.
  std::vector<DeviceInfo> devices;
  std::string reason;
  std::string runtime_version;  // "13.0"; empty when unknown
  std::string driver_version;
};

// Looks for a driver and devices without creating a context. Never fails.
CudaProbe ProbeCuda();

struct CudaDeviceOptions {
  int ordinal = 0;
  // Pinned staging and device memory of one lane at start, each for inputs and outputs. Lanes grow
  // for larger calls, up to device_bytes_max in all.
  int64_t lane_bytes = int64_t{8} << 20;
  int64_t device_bytes_max = int64_t{1} << 30;
  bool poison_outputs = false;
};

// Creates the primary context, streams and staging. UNAVAILABLE (kDeviceLost) with CUDA's words.
absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(const CudaDeviceOptions& options);

}  // namespace rlk::server
