// Addresses as gRPC wants them, and bytes of messages <-> gRPC byte buffers.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <string>

#include "absl/status/statusor.h"
#include "proto/wire/bytes.h"

namespace rlk::client {

// The target of a channel to "host:port" or "unix:/path". A path is a file's name and no URI: gRPC
// would cut it at # and ?, and take %41 for A.
std::string ChannelTarget(const std::string& address);

// Payloads with an owner and of at least 16 KiB travel by reference and keep the owner alive until
// the transport lets go of them; everything else is copied here.
grpc::ByteBuffer ToByteBuffer(wire::OutputBytes message);

// The slices of `buffer`, without copying.
absl::StatusOr<wire::InputBytes> FromByteBuffer(grpc::ByteBuffer* buffer);

}  // namespace rlk::client
