// rms_norm, qwen3_next_rms_norm and rms_norm_gated, forward and backward. README.md is their page.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "kernels/core/cpu_features.h"
#include "kernels/ops/rms_norm/formula.h"
#include "kernels/registry/registry.h"

namespace rlk {

// The six methods of the family, with every variant of this build.
std::vector<MethodDecl> DeclareRmsNorm();

// The cpu backend of all six methods. Inputs may be strided. Uses args.pool when it is given.
absl::Status LaunchRmsNormForwardCpu(const KernelArgs& args);
absl::Status LaunchRmsNormBackwardCpu(const KernelArgs& args);

// The same with the loops of one instruction set, which must be available.
absl::Status RunRmsNormForwardCpu(const KernelArgs& args, Isa isa);
absl::Status RunRmsNormBackwardCpu(const KernelArgs& args, Isa isa);

// FP64 references: outputs are F64. They follow the declared casts of args.contract.
absl::Status RmsNormForwardGolden(const KernelArgs& args);
absl::Status RmsNormBackwardGolden(const KernelArgs& args);

namespace rms_norm {

// How the terms of the weight gradient are added over rows.
enum class Fold : uint8_t { kLeft, kChunk128 };
inline constexpr int64_t kChunkRows = 128;

// A call as every backend reads it, from the arguments and the contract's name.
struct Problem {
  Convention convention = Convention::kPlain;
  Fold fold = Fold::kLeft;
  Activation activation = Activation::kSilu;
  bool round_weighted = false;  // gated hf-v1 with a weight of x's dtype
  float eps = 0;
  float weight_offset = 0;
  int64_t rows = 0;
  int64_t length = 0;  // H
};

Problem ReadProblem(const KernelArgs& args);

}  // namespace rms_norm
}  // namespace rlk
