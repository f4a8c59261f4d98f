#include "kernels/ops/rms_norm/cluster_launch.cuh"
#include "kernels/ops/rms_norm/cuda_launch.h"

namespace rlk::rms_norm {

absl::StatusOr<bool> LaunchBackwardClusterF16(const KernelArgs& args) {
  return LaunchBackwardCluster<device::F16>(args);
}

}  // namespace rlk::rms_norm
