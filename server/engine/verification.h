// What REPEAT and REFERENCE compare.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/limits.h"
#include "kernels/registry/call.h"
#include "server/engine/contract_check.h"
#include "server/engine/tolerance.h"

namespace rlk::server {

// Compares two runs' bits, element by element. `mismatched` counts elements; `first` is the C-order
// index of the first that differs (-1 when none does).
struct BitComparison {
  int64_t compared = 0;
  int64_t mismatched = 0;
  int64_t first = -1;
};
BitComparison CompareBits(DType dtype, const HostBytes& a, const HostBytes& b);

// DATA_LOSS (kVerificationFailed) naming output, count and first index.
absl::Status RepeatError(const std::string& output, const BitComparison& comparison);

// Judges `values` (contiguous, C order) against the FP64 reference of the same length:
// |value - gold| <= atol + rtol |gold|. NaN equals NaN alone; an infinity equals the same infinity,
// and a reference beyond the dtype's range counts as the infinity that it rounds to. Integer
// dtypes must be equal.
OutputCheck CompareWithReference(const std::string& output, DType dtype,
                                 std::span<const std::byte> values, std::span<const double> gold,
                                 const Tolerance& tolerance);

// The row of the tolerance contract that judges an output: the compared tensor's dtype, in the
// gradient table for a backward method. Integer and boolean outputs must be exact.
absl::StatusOr<Tolerance> OutputTolerance(const ToleranceContract& contract,
                                          const MethodSignature& signature, DType output);

// Whether a call can be verified by REFERENCE. FAILED_PRECONDITION (kVerificationUnavailable)
// without a golden or a tolerance; INVALID_ARGUMENT (kLimitExceeded) above reference_elements_max
// (of the largest tensor).
absl::Status CheckReferenceAvailable(const Method& method, const CheckedCall& checked,
                                     const Limits& limits, const ToleranceContract& contract);

}  // namespace rlk::server
