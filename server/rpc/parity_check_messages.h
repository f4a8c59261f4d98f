// Results of checks as messages.
#pragma once

#include "absl/status/statusor.h"
#include "rlk/v1/parity_check.pb.h"
#include "server/engine/tolerance.h"
#include "server/parity/check_invariance.h"
#include "server/parity/check_parity.h"
#include "server/rpc/server_facts.h"

namespace rlk::server {

// What the reports of this server refer to. Nothing is owned.
struct ReportFacts {
  const ServerFacts* server = nullptr;
  const ToleranceContract* tolerance = nullptr;
};

// Without the given tensors.
GradientOptions FromProto(const rlk::v1::GradientOptions& options);
// INVALID_ARGUMENT (kUnknownOption) for an axis that is none, or given twice.
absl::StatusOr<InvarianceOptions> FromProto(const rlk::v1::CheckInvarianceRequest& request);

// Everything but calls and bytes; `response` has the sides' places and provenance.
void FillParity(const ParityResult& result, const ReportFacts& facts,
                rlk::v1::CheckParityResponse& response);
void FillInvariance(const InvarianceResult& result, const ReportFacts& facts,
                    rlk::v1::CheckInvarianceResponse& response);

}  // namespace rlk::server
