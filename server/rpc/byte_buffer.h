// Received bytes as the codec takes them, and what it gives as bytes to send.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/statusor.h"
#include "proto/wire/bytes.h"

namespace rlk::server {

// The received slices as pieces, without a copy. INVALID_ARGUMENT for a message that cannot be
// read.
absl::StatusOr<wire::InputBytes> TakeSlices(const grpc::ByteBuffer& buffer);

// The message to send. Long payloads are referred to and keep their owner until the transport is
// done with them.
void FillBuffer(wire::OutputBytes pieces, grpc::ByteBuffer* buffer);

}  // namespace rlk::server
