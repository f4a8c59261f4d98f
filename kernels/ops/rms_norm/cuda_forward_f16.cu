#include "kernels/ops/rms_norm/cuda_launch.h"
#include "kernels/ops/rms_norm/forward_launch.cuh"

namespace rlk::rms_norm {

absl::Status LaunchForwardF16(const KernelArgs& args) { return LaunchForward<device::F16>(args); }

}  // namespace rlk::rms_norm
