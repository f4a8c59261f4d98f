// The options of `rlk check-operator` that say what its inputs are.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/args.h"
#include "kernels/registry/signature.h"

namespace rlk::cli {

// The sizes of RL-Kernel's options, by what they are in our signatures.
struct CaseSizes {
  // A leading "..." is [batch, seq], and [batch, seq, vocab] where a tensor has nothing behind it;
  // T is batch * seq.
  int64_t batch = 2, seq = 16, vocab = 257;
  std::map<char, int64_t> letters = {};
};

struct CaseOptions {
  CaseSizes sizes = {};
  // Of the inputs that allow it.
  DType dtype = DType::kF32;
  uint64_t seed = 123;
  bool constant = false;
  double constant_value = 0.25;
  // Of inputs that are integers, where `constant`.
  int64_t token_value = 0;
  // Options that set an attribute, as NAME=VALUE: "eps=1e-5".
  std::vector<std::string> attributes = {};
  // Options that mean something for some operators alone, as they were given: name, value.
  std::vector<std::pair<std::string, std::string>> given = {};
};

// What the command line may have, for command.cc.
std::vector<OptionSpec> CaseOptionSpecs();

// INVALID_ARGUMENT for a value out of range, and for one that another option makes void.
absl::StatusOr<CaseOptions> ReadCaseOptions(const Args& args);

// INVALID_ARGUMENT for a given option that none of the operator's methods has a use for. It says
// which ones have one. `forwards` is not empty.
absl::Status CheckCaseOptions(const CaseOptions& options,
                              const std::vector<MethodSignature>& forwards);

}  // namespace rlk::cli
