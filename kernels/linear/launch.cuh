// Launches with dynamic shared memory.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/status.h"

namespace rlk::linear {

// Of the current device.
inline absl::StatusOr<int> MultiprocessorCount() {
  int device = 0, count = 0;
  RLK_CUDA_RETURN_IF_ERROR(cudaGetDevice(&device));
  RLK_CUDA_RETURN_IF_ERROR(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

// As cuda::Launch, with `shared_bytes` of dynamic shared memory.
template <typename... Params, typename... Args>
absl::Status LaunchShared(void (*kernel)(Params...), dim3 grid, unsigned threads, int shared_bytes,
                          cudaStream_t stream, Args... args) {
  static_assert(sizeof...(Params) == sizeof...(Args));
  const auto* function = reinterpret_cast<const void*>(kernel);
  RLK_CUDA_RETURN_IF_ERROR(
      cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  return [&](Params... params) {
    void* pointers[] = {&params...};
    RLK_CUDA_RETURN_IF_ERROR(cudaLaunchKernel(function, grid, dim3(threads), pointers,
                                              static_cast<size_t>(shared_bytes), stream));
    return absl::OkStatus();
  }(args...);
}

}  // namespace rlk::linear
