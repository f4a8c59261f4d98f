#include "kernels/ops/rms_norm/cuda_launch.h"
#include "kernels/ops/rms_norm/forward_launch.cuh"

namespace rlk::rms_norm {

absl::Status LaunchForwardF32(const KernelArgs& args) { return LaunchForward<float>(args); }

}  // namespace rlk::rms_norm
