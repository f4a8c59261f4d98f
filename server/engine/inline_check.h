// What a call's messages carry: inline tensors and row digests, against the bound on messages.
#pragma once

#include "absl/status/status.h"
#include "kernels/registry/call.h"
#include "server/engine/contract_check.h"

namespace rlk::server {

// INVALID_ARGUMENT (kMessageTooLarge) where they do not fit. Outputs that make the reply too large
// become resident instead, the largest first, where outputs can be that.
absl::Status CheckInlineBytes(const Call& call, const ContractCheckOptions& options,
                              CheckedCall& checked);

}  // namespace rlk::server
