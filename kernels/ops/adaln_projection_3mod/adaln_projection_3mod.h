// adaln_projection_3mod, forward, forward_table and backward. README.md is its page.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "kernels/core/cpu_features.h"
#include "kernels/linear/bf16_problem.h"
#include "kernels/registry/registry.h"

namespace rlk {

// The three methods, with every variant of this build. `offer_h3` is false where CUDA's functions
// were found to have other bits than h3-v1 names.
std::vector<MethodDecl> DeclareAdalnProjection3Mod(bool offer_h3);

// The contracts of portable functions on the host. Uses args.pool when it is given.
absl::Status LaunchAdalnForwardCpu(const KernelArgs& args);
absl::Status LaunchAdalnBackwardCpu(const KernelArgs& args);

// The same with the loops of one instruction set, which must be available.
absl::Status RunAdalnForwardCpu(const KernelArgs& args, Isa isa);
absl::Status RunAdalnBackwardCpu(const KernelArgs& args, Isa isa);

// FP64 references: outputs are F64. The SiLU and its cast are those of args.contract.
absl::Status AdalnForwardGolden(const KernelArgs& args);
absl::Status AdalnBackwardGolden(const KernelArgs& args);

namespace adaln {

enum class Kind { kForward, kForwardTable, kBackward };

inline constexpr char kPortableContract[] = "adaln_projection_3mod/portable-v1";
// BF16 weights only.
inline constexpr char kK128Contract[] = "adaln_projection_3mod/k128-v1";
inline constexpr char kH3Contract[] = "adaln_projection_3mod/h3-v1";

// The chunks of a table, and their gradients, in order.
inline constexpr const char* kChunkNames[linear::kViews] = {"shift_msa", "scale_msa", "gate_msa",
                                                            "shift_mlp", "scale_mlp", "gate_mlp"};
inline constexpr const char* kGradientNames[linear::kViews] = {"grad_shift_msa", "grad_scale_msa",
                                                               "grad_gate_msa",  "grad_shift_mlp",
                                                               "grad_scale_mlp", "grad_gate_mlp"};

// What every backend reads of a call: T rows, N = 18 H outputs, D inputs.
linear::Shape ReadShape(const KernelArgs& args);
linear::SiluKind ReadSilu(const KernelArgs& args);
// The parts of the reduction (over D forward, over 18 H backward) that a call has, asked for or by
// its contract's rule.
int64_t ReadFoldParts(const KernelArgs& args);
// The table or the six views.
linear::Bf16Output ReadOutput(const KernelArgs& args);
// The six gradients; an absent one is zero.
linear::GradientSource ReadGradient(const KernelArgs& args);

}  // namespace adaln
}  // namespace rlk
