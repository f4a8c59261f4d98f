// The messages of a stream that carry bytes: one field, whose payload is passed on by reference.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "kernels/registry/call.h"
#include "proto/wire/bytes.h"

namespace rlk::wire {

// A message with the bytes field `field_number` alone. Payload pieces keep their owner.
OutputBytes EncodeChunk(int field_number, const HostBytes& payload);

// The payload of such a message, without a copy; its pieces live as long as `bytes.owner`. Nothing
// where the message begins with another field. INVALID_ARGUMENT (kMalformedMessage) where it begins
// with this one and then is not what EncodeChunk makes.
absl::StatusOr<std::optional<HostBytes>> DecodeChunk(int field_number, const InputBytes& bytes);

}  // namespace rlk::wire
