// The epilogue of a forward that a kernel of its own applies.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/core/stream_ref.h"
#include "kernels/linear/bf16_problem.h"

namespace rlk::linear {

// What ForwardThenActivate needs of `scratch`, aligned to 256.
int64_t ActivationScratchBytes(const Bf16Linear& problem);

// For a `forward` that knows no activation and no pre: it is given a problem without them, and what
// they ask for follows it.
absl::Status ForwardThenActivate(const Bf16Linear& problem, void* scratch, StreamRef stream,
                                 absl::FunctionRef<absl::Status(const Bf16Linear&)> forward);

}  // namespace rlk::linear
