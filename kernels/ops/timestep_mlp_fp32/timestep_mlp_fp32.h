// timestep_mlp_fp32, forward and backward. README.md is its page.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "kernels/core/cpu_features.h"
#include "kernels/registry/registry.h"

namespace rlk {

// The two methods, with every variant of this build.
std::vector<MethodDecl> DeclareTimestepMlpFp32();

// Contract portable-v1 on the host. Uses args.pool when it is given.
absl::Status LaunchTimestepMlpForwardCpu(const KernelArgs& args);
absl::Status LaunchTimestepMlpBackwardCpu(const KernelArgs& args);

// The same with the loops of one instruction set, which must be available.
absl::Status RunTimestepMlpForwardCpu(const KernelArgs& args, Isa isa);
absl::Status RunTimestepMlpBackwardCpu(const KernelArgs& args, Isa isa);

// FP64 references: outputs are F64.
absl::Status TimestepMlpForwardGolden(const KernelArgs& args);
absl::Status TimestepMlpBackwardGolden(const KernelArgs& args);

namespace timestep_mlp {

inline constexpr char kPortableContract[] = "timestep_mlp_fp32/portable-v1";

// x [T, K], w1 [M, K], w2 [N, M].
struct Sizes {
  int64_t rows = 0, inputs = 0, hidden = 0, outputs = 0;
};
Sizes ReadSizes(const KernelArgs& args);

}  // namespace timestep_mlp
}  // namespace rlk
