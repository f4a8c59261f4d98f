// The report of a reply, straight from the engine's result to bytes.
#pragma once

#include <string>

#include "proto/wire/call_codec.h"

namespace rlk::wire {

// Appends the fields of rlk.v1.CallReport in the order and the spelling in which protobuf writes
// them deterministically.
void AppendReport(const CallResult& result, const ReportContext& context, std::string& out);

}  // namespace rlk::wire
