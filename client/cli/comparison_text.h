// Comparisons as text and JSON.
#pragma once

#include <string>

#include "client/cli/command.h"
#include "client/cli/render.h"
#include "google/protobuf/message.h"
#include "rlk/v1/comparison.pb.h"
#include "rlk/v1/policy.pb.h"

namespace rlk::cli {

// Every field of the message, those with their default value too. Enumerators are written as
// messages name them without their prefix, in lower case; numbers that are not finite are strings.
// A CallReport is that of `rlk call` (ReportJson).
Json MessageJson(const google::protobuf::Message& message);

std::string ComparisonText(const rlk::v1::Comparison& comparison);
std::string PolicyText(const rlk::v1::PolicyComparison& comparison);

// Text, JSON and exit code: 1 where the comparison did not pass.
Outcome ComparisonOutcome(const rlk::v1::Comparison& comparison);

// VALUE of the command line: a handle, or a tensor that `kept` then holds.
absl::Status LoadSide(const std::string& text, client::Tensor& kept, client::TensorRef& ref);

}  // namespace rlk::cli
