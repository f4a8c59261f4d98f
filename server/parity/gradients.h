// From a forward call to the calls of its gradients, by the signatures alone: nothing here knows an
// operator. server/parity/checks.md states the rule.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/registry/registry.h"
#include "server/parity/call_runner.h"
#include "server/parity/host_tensor.h"

namespace rlk::server {

struct GradientOptions {
  enum class Mode : uint8_t { kOnes, kRandom };
  Mode mode = Mode::kRandom;
  // kRandom: output i of the forward's signature has seed + i.
  uint64_t seed = 123;
  // By name ("grad_y"): these are taken and not made.
  std::map<std::string, HostTensor> given = {};
};

// Elements of the nearly normal numbers of kernels/core/counter_random.h, cast once to FP32 and
// once more to a 16-bit dtype; of integers, the random bits modulo 256. INVALID_ARGUMENT
// (kDtypeNotAllowed) for other dtypes.
absl::StatusOr<HostTensor> NormalTensor(DType dtype, const Dims& shape, uint64_t seed);
absl::StatusOr<HostTensor> OnesTensor(DType dtype, const Dims& shape);

// The methods of the operator that take a gradient of one of the forward's outputs.
// INVALID_ARGUMENT (kMissingTensor), naming the gradient, where there is none.
absl::StatusOr<std::vector<const Method*>> BackwardMethods(const Registry& registry,
                                                           const Method& forward);

// The forward's outputs on request that a backward method cannot do without.
std::set<std::string> SavedOutputs(const Method& forward,
                                   const std::vector<const Method*>& backwards);

// The call of a backward method: an input named like one of the forward takes that tensor; grad_X
// of output X is given or made; one named like an output of the forward takes it from `outputs`,
// if it must be there or is in `saved`. Attributes are carried over by name where the backward
// allows the value. INVALID_ARGUMENT (kMissingTensor, kDtypeNotAllowed) names the input that the
// rule does not give.
absl::StatusOr<ValueCall> BackwardCall(const ValueCall& forward,
                                       const std::vector<ValueOutput>& outputs,
                                       const Method& backward, const GradientOptions& options,
                                       const std::set<std::string>& saved);

// A method's run and what it was run on.
struct RunOf {
  ValueCall call;
  MethodRun run;
};

// Runs the forward call and, with `gradients`, its backward methods on the same side: the runs in
// that order. An optional saved output is passed on where the operator asks for it.
absl::StatusOr<std::vector<RunOf>> RunWithGradients(const Registry& registry, CallRunner& runner,
                                                    const ValueCall& call, bool gradients,
                                                    const GradientOptions& options, std::byte fill,
                                                    CheckContext& context);

}  // namespace rlk::server
