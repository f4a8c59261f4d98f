#include "kernels/ops/rms_norm/cuda_launch.h"
#include "kernels/ops/rms_norm/fold_launch.cuh"

namespace rlk::rms_norm {

absl::Status LaunchBackwardFoldBf16(const KernelArgs& args) {
  return LaunchBackwardFold<device::Bf16>(args);
}

}  // namespace rlk::rms_norm
