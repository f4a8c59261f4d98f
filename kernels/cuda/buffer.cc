#include "kernels/cuda/buffer.h"

#include <cuda_runtime_api.h>

#include "kernels/cuda/status.h"

namespace rlk::cuda {

absl::StatusOr<DeviceBuffer> DeviceBuffer::Allocate(int64_t bytes) {
  DeviceBuffer buffer;
  if (bytes == 0) return buffer;
  void* data = nullptr;
  RLK_CUDA_RETURN_IF_ERROR(cudaMalloc(&data, static_cast<size_t>(bytes)));
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.bytes_ = bytes;
  return buffer;
}

void DeviceBuffer::Free() {
  if (data_ != nullptr) cudaFree(data_);
  Leak();
}

void DeviceBuffer::Leak() {
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace rlk::cuda
