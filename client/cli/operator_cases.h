// Inputs for `rlk check-operator`: from an operator's signatures and a few sizes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/call_arguments.h"
#include "client/cli/case_options.h"
#include "kernels/registry/signature.h"

namespace rlk::cli {

struct OperatorCase {
  MethodSignature signature;
  CallArguments call;
};

// The tensor of input `spec`. Random values are those of `random:`, those of an input "timestep"
// fractions, those of a matrix of weights over the root of its columns.
absl::StatusOr<client::Tensor> MakeInput(const TensorSpec& spec, DType dtype, const Dims& shape,
                                         uint64_t seed, const CaseOptions& options);

// One case for each forward method of the operator. `words` are NAME=VALUE that take the place of
// what is made, each for the methods that have the name. INVALID_ARGUMENT where the operator is
// unknown, no input allows the dtype, nothing has a name, or an option means nothing for it.
absl::StatusOr<std::vector<OperatorCase>> MakeCases(const std::string& operator_name,
                                                    const std::vector<std::string>& words,
                                                    const CaseOptions& options);

}  // namespace rlk::cli
