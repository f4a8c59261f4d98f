// cudaError_t as absl::Status. The one place where CUDA's errors get a code and a reason.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "absl/status/status.h"

namespace rlk::cuda {

// OK for cudaSuccess. Out of memory: RESOURCE_EXHAUSTED (kDeviceMemoryExhausted), and the runtime's
// last error is cleared. A sticky error: UNAVAILABLE (kDeviceLost). Others: INTERNAL. `what` names
// the operation ("cudaMemcpyAsync").
absl::Status ToStatus(cudaError_t error, std::string_view what);

// True for errors after which the context can do no more work.
bool IsSticky(cudaError_t error);
// True for a status that ToStatus made of a sticky error.
bool IsDeviceLost(const absl::Status& status);

}  // namespace rlk::cuda

#define RLK_CUDA_RETURN_IF_ERROR(call)                                           \
  do {                                                                           \
    if (cudaError_t rlk_error = (call); rlk_error != cudaSuccess) [[unlikely]] { \
      return ::rlk::cuda::ToStatus(rlk_error, #call);                            \
    }                                                                            \
  } while (0)
