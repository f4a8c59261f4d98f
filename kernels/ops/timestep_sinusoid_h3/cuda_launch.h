// Launchers of the two contracts; sinusoid_portable.cu and sinusoid_h3.cu define them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/registry/kernel_args.h"

namespace rlk::timestep_sinusoid {

absl::Status LaunchPortableForward(const KernelArgs& args);
absl::Status LaunchPortableBackward(const KernelArgs& args);
absl::Status LaunchH3Forward(const KernelArgs& args);
absl::Status LaunchH3Backward(const KernelArgs& args);

// The text digest of the h3-v1 embedding [4097, 256] of timesteps i / 4096 at max_period 10000, on
// a device: whether CUDA's functions there have the bits that the contract names. Blocks.
absl::StatusOr<std::string> H3Digest(int ordinal);

}  // namespace rlk::timestep_sinusoid
