// What checks found, as text. Their JSON is that of the messages (MessageJson).
#pragma once

#include <string>

#include "rlk/v1/parity_check.pb.h"

namespace rlk::cli {

// "12 of 4096 elements differ, first at 17: 3f800001 against 3f800000; at most 3 ULP; ...".
std::string ComparisonLine(const rlk::v1::Comparison& comparison);

std::string ParityText(const rlk::v1::CheckParityResponse& response);
std::string InvarianceText(const rlk::v1::CheckInvarianceResponse& response);

}  // namespace rlk::cli
