// Inputs for `rlk check-operator`: from an operator's signatures and a few sizes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/args.h"
#include "client/cli/call_arguments.h"
#include "kernels/registry/signature.h"

namespace rlk::cli {

// The sizes of RL-Kernel's options, by what they are in our signatures.
struct CaseSizes {
  // A leading "..." is [batch, seq], and [batch, seq, vocab] where a tensor has nothing behind it;
  // T is batch * seq.
  int64_t batch = 2, seq = 16, vocab = 257;
  std::map<char, int64_t> letters;
};

struct CaseOptions {
  CaseSizes sizes;
  // Of the inputs that allow it.
  DType dtype = DType::kF32;
  uint64_t seed = 123;
  bool constant = false;
  double constant_value = 0.25;
};

// --batch, --seq, --vocab, --normalized-dim (H), --k-dim (K), --n-dim (N), --size LETTER=N,
// --dtype,
// --seed, --input-mode random|constant, --constant-value.
absl::StatusOr<CaseOptions> ReadCaseOptions(const Args& args);

struct OperatorCase {
  MethodSignature signature;
  CallArguments call;
};

// One case for each forward method of the operator. `words` are NAME=VALUE that take the place of
// what is made, each for the methods that have the name. INVALID_ARGUMENT where the operator is
// unknown, no input allows the dtype, or nothing has a name.
absl::StatusOr<std::vector<OperatorCase>> MakeCases(const std::string& operator_name,
                                                    const std::vector<std::string>& words,
                                                    const CaseOptions& options);

}  // namespace rlk::cli
