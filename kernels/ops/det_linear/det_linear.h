// det_linear, forward and the two backwards. README.md is its page.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "kernels/core/cpu_features.h"
#include "kernels/linear/problem.h"
#include "kernels/registry/registry.h"

namespace rlk {

// The three methods, with every variant of this build.
std::vector<MethodDecl> DeclareDetLinear();

// Contract h3-det-linear-v1 on the host. Inputs are contiguous. Uses args.pool when it is given.
absl::Status LaunchDetLinearFp32ForwardCpu(const KernelArgs& args);
absl::Status LaunchDetLinearFp32BackwardInputCpu(const KernelArgs& args);
absl::Status LaunchDetLinearFp32BackwardWeightCpu(const KernelArgs& args);

// The same with the loops of one instruction set, which must be available.
absl::Status RunDetLinearFp32ForwardCpu(const KernelArgs& args, Isa isa);
absl::Status RunDetLinearFp32BackwardInputCpu(const KernelArgs& args, Isa isa);
absl::Status RunDetLinearFp32BackwardWeightCpu(const KernelArgs& args, Isa isa);

// The contracts of BF16 operands on the host, in the same way; args.contract tells which.
absl::Status LaunchDetLinearBf16ForwardCpu(const KernelArgs& args);
absl::Status LaunchDetLinearBf16BackwardInputCpu(const KernelArgs& args);
absl::Status LaunchDetLinearBf16BackwardWeightCpu(const KernelArgs& args);
absl::Status RunDetLinearBf16ForwardCpu(const KernelArgs& args, Isa isa);
absl::Status RunDetLinearBf16BackwardInputCpu(const KernelArgs& args, Isa isa);
absl::Status RunDetLinearBf16BackwardWeightCpu(const KernelArgs& args, Isa isa);

// FP64 references: outputs are F64.
absl::Status DetLinearForwardGolden(const KernelArgs& args);
absl::Status DetLinearBackwardInputGolden(const KernelArgs& args);
absl::Status DetLinearBackwardWeightGolden(const KernelArgs& args);

namespace det_linear {

enum class Kind { kForward, kBackwardInput, kBackwardWeight };

// "det_linear/h3-det-linear-v1", for F32 operands.
inline constexpr char kFp32Contract[] = "det_linear/h3-det-linear-v1";

// For BF16 operands.
inline constexpr char kBf16Contract[] = "det_linear/h3-det-linear-bf16-mma-v1";
inline constexpr char kK128Contract[] = "det_linear/bf16-k128-v1";
// What backend cublaslt gives, BF16 operands, forward.
inline constexpr char kWitnessContract[] = "det_linear/cublaslt";

// What every backend reads of a call.
linear::Shape ReadShape(const KernelArgs& args, Kind kind);
linear::Activation ReadActivation(const KernelArgs& args);
// The parts of the reduction that a call has, asked for or by its contract's rule.
int64_t ReadFoldParts(const KernelArgs& args, Kind kind);

linear::Operand OperandOf(const TensorView& tensor);
linear::Result ResultOf(const MutableTensorView& tensor);

// A call of an F32 contract as kernels/linear takes it. In the backwards g is left to the caller.
linear::Fp32Forward ReadFp32Forward(const KernelArgs& args);
linear::BackwardInput ReadBackwardInput(const KernelArgs& args);
linear::BackwardWeight ReadBackwardWeight(const KernelArgs& args);

}  // namespace det_linear
}  // namespace rlk
