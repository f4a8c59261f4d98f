// grad_weight of contract bf16-k128-v1 for few rows.
#pragma once

#include "absl/status/status.h"
#include "kernels/core/stream_ref.h"
#include "kernels/linear/bf16_problem.h"

namespace rlk::linear {

// Whether LaunchK128FewRowsWeight takes the problem.
bool K128FewRows(const Bf16BackwardWeight& problem);
// grad_weight, one of its two results at least, and grad_bias where it is wanted, of the problem's
// own gradient.
absl::Status LaunchK128FewRowsWeight(const Bf16BackwardWeight& problem, StreamRef stream);

}  // namespace rlk::linear
