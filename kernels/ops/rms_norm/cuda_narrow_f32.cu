#include "kernels/ops/rms_norm/cuda_launch.h"
#include "kernels/ops/rms_norm/narrow_launch.cuh"

namespace rlk::rms_norm {

absl::StatusOr<bool> LaunchBackwardNarrowF32(const KernelArgs& args) {
  return LaunchBackwardNarrow<float>(args);
}

}  // namespace rlk::rms_norm
