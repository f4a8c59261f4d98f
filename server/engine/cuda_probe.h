// What ProbeCuda and the devices know of a GPU. Internal to the CUDA device.
#pragma once

#include "absl/status/statusor.h"
#include "kernels/registry/call.h"

namespace rlk::server {

absl::StatusOr<DeviceInfo> CudaDeviceInfo(int ordinal);

}  // namespace rlk::server
