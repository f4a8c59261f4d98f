// grpc::Status -> absl::Status, with the typed detail that the server sent restored.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "kernels/core/status.h"

namespace rlk::client {

// The code and message are the server's. Where the status carries google.rpc.ErrorInfo of domain
// "rlk", GetErrorDetail(result) gives reason, field, value and allowed set, and retry_after_ms from
// google.rpc.RetryInfo. A reason that this client does not know becomes Reason::kUnknown.
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace rlk::client
