#include "kernels/ops/timestep_sinusoid_h3/cuda_launch.h"
#include "kernels/ops/timestep_sinusoid_h3/sinusoid_launch.cuh"

namespace rlk::timestep_sinusoid {

absl::Status LaunchPortableForward(const KernelArgs& args) { return LaunchForward<Portable>(args); }
absl::Status LaunchPortableBackward(const KernelArgs& args) {
  return LaunchBackward<Portable>(args);
}

}  // namespace rlk::timestep_sinusoid
