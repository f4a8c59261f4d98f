// The log line of a call whose two runs gave different bits.
#pragma once

#include <string>

#include "server/engine/repeat_mismatch.h"
#include "server/log/log.h"

namespace rlk::server {

// An error line with method, contract, attributes, kernel, device, digests of inputs and of both
// outputs, provenance and trace: what running the call again needs, but for the tensors.
void LogRepeatMismatch(const Logger& logger, const std::string& provenance_id,
                       const RepeatMismatch& mismatch);

}  // namespace rlk::server
