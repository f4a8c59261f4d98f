// Comparisons of policies <-> messages of rlk.v1.
#pragma once

#include "absl/status/statusor.h"
#include "rlk/v1/policy.pb.h"
#include "server/parity/policy.h"

namespace rlk::server {

// INVALID_ARGUMENT for what no comparison can have.
absl::StatusOr<PolicyOptions> FromProto(const rlk::v1::PolicyOptions& options);

void FillPolicy(const PolicyComparison& comparison, rlk::v1::PolicyComparison& out);

}  // namespace rlk::server
