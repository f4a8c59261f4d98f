// OPERATOR.METHOD NAME=VALUE...: the words of a call.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "client/cpp/tensor.h"
#include "kernels/registry/signature.h"

namespace rlk::cli {

struct NamedTensor {
  std::string name;
  client::Tensor tensor;
};

struct CallArguments {
  client::CallRequest request;
  std::vector<NamedTensor> inputs;  // what request.inputs look at
  // Inputs that stay on the server, by name.
  std::vector<std::pair<std::string, std::string>> handles;
};

// INVALID_ARGUMENT for a method, an input or an attribute that is not there, given twice, or has
// another value; and for what LoadTensor refuses.
absl::StatusOr<CallArguments> ParseCallArguments(const std::vector<std::string>& words);

// One NAME=VALUE more.
absl::Status AddArgument(const MethodSignature& signature, const std::string& argument,
                         CallArguments& call);

}  // namespace rlk::cli
