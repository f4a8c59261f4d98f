#include "server/engine/cuda_probe.h"

#include "server/engine/cuda_device.h"

#if defined(RLK_WITH_CUDA)

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "kernels/cuda/status.h"

namespace rlk::server {
namespace {

std::string VersionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// As nvidia-smi prints it.
std::string UuidText(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    char hex[3];
    std::snprintf(hex, sizeof(hex), "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    text += hex;
  }
  return text;
}

std::string NoDeviceReason(cudaError_t error, int driver_version) {
  if (driver_version == 0) return "no NVIDIA driver: libcuda.so.1 was not found";
  std::string reason = std::string(cudaGetErrorString(error)) + " (" + cudaGetErrorName(error) +
                       ", driver " + VersionText(driver_version) + ")";
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"); visible != nullptr) {
    reason += "; CUDA_VISIBLE_DEVICES is set";
  }
  return reason;
}

}  // namespace

absl::StatusOr<DeviceInfo> CudaDeviceInfo(int ordinal) {
  cudaDeviceProp properties;
  RLK_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, ordinal));
  DeviceInfo info;
  info.kind = DeviceKind::kCuda;
  info.ordinal = ordinal;
  info.name = properties.name;
  info.uuid = UuidText(properties.uuid);
  info.compute_capability = 10 * properties.major + properties.minor;
  info.shared_bytes_per_block = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
  info.multiprocessors = properties.multiProcessorCount;
  info.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  return info;
}

CudaProbe ProbeCuda() {
  CudaProbe probe;
  int runtime_version = 0, driver_version = 0, count = 0;
  if (cudaRuntimeGetVersion(&runtime_version) == cudaSuccess) {
    probe.runtime_version = VersionText(runtime_version);
  }
  if (cudaDriverGetVersion(&driver_version) != cudaSuccess) driver_version = 0;
  if (driver_version > 0) probe.driver_version = VersionText(driver_version);
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    probe.reason = NoDeviceReason(error == cudaSuccess ? cudaErrorNoDevice : error, driver_version);
    cudaGetLastError();
    return probe;
  }
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    absl::StatusOr<DeviceInfo> info = CudaDeviceInfo(ordinal);
    if (!info.ok()) {
      probe.reason =
          "device " + std::to_string(ordinal) + ": " + std::string(info.status().message());
      cudaGetLastError();
      continue;
    }
    probe.devices.push_back(*std::move(info));
  }
  return probe;
}

}  // namespace rlk::server

#else  // a build without CUDA

namespace rlk::server {

CudaProbe ProbeCuda() {
  CudaProbe probe;
  probe.reason = "this build has no CUDA backend";
  return probe;
}

}  // namespace rlk::server

#endif
