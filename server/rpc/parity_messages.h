// Comparisons <-> messages of rlk.v1.
#pragma once

#include "absl/status/statusor.h"
#include "kernels/core/limits.h"
#include "rlk/v1/comparison.pb.h"
#include "server/parity/comparison.h"

namespace rlk::server {

// INVALID_ARGUMENT for what no comparison can have; `field` names the options in errors.
absl::StatusOr<ComparisonOptions> FromProto(const rlk::v1::ComparisonOptions& options,
                                            std::string_view field, const Limits& limits);

void FillComparison(const Comparison& comparison, rlk::v1::Comparison& out);

}  // namespace rlk::server
