// cuBLASLt as a witness: a library's own product of the same operands, for comparisons. The library
// is loaded when it is first asked for and need not be there. Its bits are not rlk's: they depend
// on its version and on the device, and a row's may depend on how many rows there are.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "kernels/core/stream_ref.h"
#include "kernels/linear/bf16_problem.h"

namespace rlk::linear {

// Whether the library is there and gives a handle on device `ordinal`: FAILED_PRECONDITION, saying
// what is missing.
absl::Status CheckCublasLt(int ordinal);
// "13.1.0" of the loaded library; empty where there is none.
std::string CublasLtVersion();

// y = x weight^T (+ bias), BF16 operands, FP32 accumulation, y in BF16 or FP32; without an
// activation, `pre` and views. One algorithm for each [N, K] and output dtype, whatever T: the
// library's first choice for kWitnessRows rows without a workspace, so without a split of K.
// INTERNAL where that algorithm does not take T rows.
inline constexpr int64_t kWitnessRows = 64;
absl::Status LaunchCublasLt(const Bf16Linear& problem, StreamRef stream);

}  // namespace rlk::linear
