#include "kernels/ops/rms_norm/cuda_launch.h"
#include "kernels/ops/rms_norm/rows_launch.cuh"

namespace rlk::rms_norm {

absl::Status LaunchBackwardRowsF16(const KernelArgs& args) {
  return LaunchBackwardRows<device::F16>(args);
}

}  // namespace rlk::rms_norm
