#include "kernels/ops/rms_norm/cuda_launch.h"
#include "kernels/ops/rms_norm/fold_launch.cuh"

namespace rlk::rms_norm {

absl::Status LaunchBackwardFoldF32(const KernelArgs& args) {
  return LaunchBackwardFold<float>(args);
}

}  // namespace rlk::rms_norm
