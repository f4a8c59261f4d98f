// Functions of the driver that the runtime has loaded: nothing links libcuda.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/status.h"

namespace rlk::cuda {

// `version` is that of the function's type, PFN_cuMemCreate_v10020's 10020. INTERNAL where the
// driver has it not.
template <typename Function>
absl::Status FindDriverFunction(const char* name, unsigned version, Function* to) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  RLK_CUDA_RETURN_IF_ERROR(
      cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &result));
  if (result != cudaDriverEntryPointSuccess || function == nullptr) {
    return absl::InternalError(absl::StrCat("the driver has no ", name));
  }
  *to = reinterpret_cast<Function>(function);
  return absl::OkStatus();
}

}  // namespace rlk::cuda
