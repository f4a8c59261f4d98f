// Launch geometry, checked: sizes are int64_t until here and are narrowed once.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/status.h"

namespace rlk::cuda {

// Blocks of a one-dimensional grid for `count` items at `items_per_block`; count > 0. INTERNAL
// beyond 2^31 - 1 blocks.
absl::StatusOr<unsigned> GridBlocks(int64_t count, int64_t items_per_block);

// Launches on the stream and reports what the launch itself says. Arguments are copied before this
// returns.
template <typename... Params, typename... Args>
absl::Status Launch(void (*kernel)(Params...), unsigned blocks, unsigned threads,
                    cudaStream_t stream, Args... args) {
  static_assert(sizeof...(Params) == sizeof...(Args));
  return [&](Params... params) {
    void* pointers[] = {&params...};
    RLK_CUDA_RETURN_IF_ERROR(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(blocks),
                                              dim3(threads), pointers, 0, stream));
    return absl::OkStatus();
  }(args...);
}

// What a launch may ask for besides its grid.
struct LaunchShape {
  unsigned blocks = 1;
  unsigned blocks_y = 1;
  unsigned threads = 1;
  unsigned cluster = 1;     // blocks of a cluster; above 1 only from sm_90
  size_t shared_bytes = 0;  // dynamic shared memory
  bool starts_early =
      false;  // may start while the kernel ahead ends: programmatic dependent launch
};

// The launch behind LaunchWith: INTERNAL or RESOURCE_EXHAUSTED in CUDA's words.
absl::Status LaunchKernel(const void* kernel, const LaunchShape& shape, cudaStream_t stream,
                          void** arguments);

template <typename... Params, typename... Args>
absl::Status LaunchWith(void (*kernel)(Params...), const LaunchShape& shape, cudaStream_t stream,
                        Args... args) {
  static_assert(sizeof...(Params) == sizeof...(Args));
  return [&](Params... params) {
    void* pointers[] = {&params...};
    return LaunchKernel(reinterpret_cast<const void*>(kernel), shape, stream, pointers);
  }(args...);
}

// Properties of the current device that a launcher chooses by.
struct DeviceShape {
  int multiprocessors = 0;
  int capability = 0;  // 90 for sm_90
};
absl::StatusOr<DeviceShape> CurrentDeviceShape();

}  // namespace rlk::cuda
