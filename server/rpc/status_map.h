// absl::Status -> grpc::Status. The only place that knows both.
//
// `grpc-status-details-bin` holds a google.rpc.Status with ErrorInfo (domain "rlk", reason,
// metadata "field", "value", "allowed"), BadRequest for an INVALID_ARGUMENT that names a field, and
// RetryInfo where a retry helps. The whole stays below kStatusDetailsBytesMax, because a client's
// default bound on metadata is 8 KiB.
#pragma once

#include <grpcpp/support/status.h>

#include <cstddef>

#include "absl/status/status.h"

namespace rlk::server {

inline constexpr size_t kStatusDetailsBytesMax = 6 << 10;

grpc::Status ToGrpcStatus(const absl::Status& status);

// What another rlk server said; without a detail where it was not one that spoke.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace rlk::server
