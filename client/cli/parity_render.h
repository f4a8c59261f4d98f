// What checks found, as text and JSON.
#pragma once

#include <string>

#include "client/cli/render.h"
#include "rlk/v1/parity_check.pb.h"

namespace rlk::cli {

// One comparison: judgment, counts, first mismatch, ULP, errors, rule, triage.
Json ComparisonFields(const rlk::v1::Comparison& comparison);
// "12 of 4096 elements differ, first at 17: 3f800001 against 3f800000; at most 3 ULP; ...".
std::string ComparisonLine(const rlk::v1::Comparison& comparison);

Json ParityJson(const rlk::v1::CheckParityResponse& response);
std::string ParityText(const rlk::v1::CheckParityResponse& response);
Json InvarianceJson(const rlk::v1::CheckInvarianceResponse& response);
std::string InvarianceText(const rlk::v1::CheckInvarianceResponse& response);

}  // namespace rlk::cli
