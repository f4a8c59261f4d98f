#include "kernels/ops/rms_norm/cuda_launch.h"
#include "kernels/ops/rms_norm/rows_launch.cuh"

namespace rlk::rms_norm {

absl::Status LaunchBackwardRowsF32(const KernelArgs& args) {
  return LaunchBackwardRows<float>(args);
}

}  // namespace rlk::rms_norm
