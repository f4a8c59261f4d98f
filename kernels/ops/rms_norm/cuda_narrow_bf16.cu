#include "kernels/ops/rms_norm/cuda_launch.h"
#include "kernels/ops/rms_norm/narrow_launch.cuh"

namespace rlk::rms_norm {

absl::StatusOr<bool> LaunchBackwardNarrowBf16(const KernelArgs& args) {
  return LaunchBackwardNarrow<device::Bf16>(args);
}

}  // namespace rlk::rms_norm
