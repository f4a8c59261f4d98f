#include "kernels/ops/rms_norm/cuda_launch.h"
#include "kernels/ops/rms_norm/rows_launch.cuh"

namespace rlk::rms_norm {

absl::Status LaunchBackwardRowsBf16(const KernelArgs& args) {
  return LaunchBackwardRows<device::Bf16>(args);
}

}  // namespace rlk::rms_norm
