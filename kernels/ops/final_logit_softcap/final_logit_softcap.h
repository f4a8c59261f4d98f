// final_logit_softcap: y = softcap * tanh(x / softcap), and its gradient. README.md is its page.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "kernels/core/cpu_features.h"
#include "kernels/registry/registry.h"

namespace rlk {

inline constexpr char kSoftcapPortableContract[] = "final_logit_softcap/portable-v1";
inline constexpr char kSoftcapGoldenContract[] = "final_logit_softcap/golden-f64";

// final_logit_softcap.forward and .backward with every variant of this build.
std::vector<MethodDecl> DeclareFinalLogitSoftcap();

// The cpu backend. Inputs may be strided. Uses args.pool when it is given.
absl::Status LaunchSoftcapForwardCpu(const KernelArgs& args);
absl::Status LaunchSoftcapBackwardCpu(const KernelArgs& args);

// The same with the loops of one instruction set, which must be available.
absl::Status RunSoftcapForwardCpu(const KernelArgs& args, Isa isa);
absl::Status RunSoftcapBackwardCpu(const KernelArgs& args, Isa isa);

// FP64 reference: outputs are F64. The gradient is grad_y / cosh(x / softcap)^2.
absl::Status SoftcapForwardGolden(const KernelArgs& args);
absl::Status SoftcapBackwardGolden(const KernelArgs& args);

}  // namespace rlk
