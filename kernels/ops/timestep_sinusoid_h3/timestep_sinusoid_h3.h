// timestep_sinusoid_h3, forward and backward. README.md is its page.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "kernels/core/cpu_features.h"
#include "kernels/registry/registry.h"

namespace rlk {

// The two methods, with every variant of this build. `offer_h3` is false where CUDA's functions
// were found to have other bits than h3-v1 names.
std::vector<MethodDecl> DeclareTimestepSinusoidH3(bool offer_h3);

// Contract portable-v1 on the host. Inputs may be strided. Uses args.pool when it is given.
absl::Status LaunchTimestepSinusoidForwardCpu(const KernelArgs& args);
absl::Status LaunchTimestepSinusoidBackwardCpu(const KernelArgs& args);

// The same with the loops of one instruction set, which must be available.
absl::Status RunTimestepSinusoidForwardCpu(const KernelArgs& args, Isa isa);
absl::Status RunTimestepSinusoidBackwardCpu(const KernelArgs& args, Isa isa);

// FP64 references: outputs are F64.
absl::Status TimestepSinusoidForwardGolden(const KernelArgs& args);
absl::Status TimestepSinusoidBackwardGolden(const KernelArgs& args);

namespace timestep_sinusoid {

inline constexpr char kPortableContract[] = "timestep_sinusoid_h3/portable-v1";
inline constexpr char kH3Contract[] = "timestep_sinusoid_h3/h3-v1";
inline constexpr int64_t kChannelsMax = 65536;

// A call as every backend reads it.
struct Problem {
  int64_t rows = 0;        // T
  int64_t half = 0;        // C / 2
  float log_period = 0;    // fp32(-log(max_period))
  float inverse_half = 0;  // div(1, float(half))
};

Problem ReadProblem(const KernelArgs& args, bool backward);

// Terms of a gradient's sum, padded: the smallest power of two that holds C.
int64_t PaddedChannels(int64_t half);

}  // namespace timestep_sinusoid
}  // namespace rlk
