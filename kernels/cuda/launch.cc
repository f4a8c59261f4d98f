#include "kernels/cuda/launch.h"

#include <limits>
#include <string>

#include "kernels/core/status.h"

namespace rlk::cuda {

absl::StatusOr<unsigned> GridBlocks(int64_t count, int64_t items_per_block) {
  const int64_t blocks = (count - 1) / items_per_block + 1;
  if (count <= 0 || blocks > std::numeric_limits<int32_t>::max()) {
    ErrorDetail detail;
    detail.reason = Reason::kInternal;
    detail.field = "grid";
    detail.value = std::to_string(blocks);
    detail.allowed = "1 .. 2^31 - 1";
    return MakeError(absl::StatusCode::kInternal, std::move(detail),
                     "the launch needs a grid that CUDA does not have");
  }
  return static_cast<unsigned>(blocks);
}

absl::Status LaunchKernel(const void* kernel, const LaunchShape& shape, cudaStream_t stream,
                          void** arguments) {
  // Static limits are 48 KiB; beyond them a kernel must be told on each device.
  constexpr size_t kUnasked = 48 * 1024;
  if (shape.shared_bytes > kUnasked) {
    RLK_CUDA_RETURN_IF_ERROR(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes)));
  }
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(shape.blocks, shape.blocks_y);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  if (shape.cluster > 1) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = shape.cluster;
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
  }
  if (shape.starts_early) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  RLK_CUDA_RETURN_IF_ERROR(cudaLaunchKernelExC(&config, kernel, arguments));
  return absl::OkStatus();
}

absl::StatusOr<DeviceShape> CurrentDeviceShape() {
  int device = 0, major = 0, minor = 0;
  DeviceShape shape;
  RLK_CUDA_RETURN_IF_ERROR(cudaGetDevice(&device));
  RLK_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&shape.multiprocessors, cudaDevAttrMultiProcessorCount, device));
  RLK_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  RLK_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  shape.capability = 10 * major + minor;
  return shape;
}

}  // namespace rlk::cuda
