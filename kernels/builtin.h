// The one visible list of operators.
#pragma once

#include "kernels/registry/registry.h"

namespace rlk {

struct BuiltinOptions {
  // A CUDA device is present and usable, and what its compute capability is (10 * major + minor).
  bool has_cuda = false;
  // Why there is none, for the backend's reason.
  std::string cuda_reason;
  int compute_capability = 0;
  int cuda_ordinal = 0;
  // Backends to offer; empty offers all.
  std::vector<Backend> backends;
};

// Runs the known-answer vectors of each backend, records their states, and declares every
// operator. The caller binds the signatures.
void RegisterBuiltin(const BuiltinOptions& options, Registry& registry);

}  // namespace rlk
