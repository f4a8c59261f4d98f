// Bytes of messages <-> gRPC byte buffers.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/statusor.h"
#include "proto/wire/bytes.h"

namespace rlk::client {

// Payloads with an owner and of at least 16 KiB travel by reference and keep the owner alive until
// the transport lets go of them; everything else is copied here.
grpc::ByteBuffer ToByteBuffer(wire::OutputBytes message);

// The slices of `buffer`, without copying.
absl::StatusOr<wire::InputBytes> FromByteBuffer(grpc::ByteBuffer* buffer);

}  // namespace rlk::client
