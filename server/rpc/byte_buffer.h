// Received bytes as the codec takes them.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/statusor.h"
#include "proto/wire/bytes.h"

namespace rlk::server {

// The received slices as pieces, without a copy. INVALID_ARGUMENT for a message that cannot be
// read.
absl::StatusOr<wire::InputBytes> TakeSlices(const grpc::ByteBuffer& buffer);

}  // namespace rlk::server
