// The one codec: splits any message into its small part and its tensor payloads without copying
// payloads, and joins them again. Server, C++ client and fuzz targets use it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/arena.h"
#include "google/protobuf/message.h"
#include "kernels/registry/call.h"
#include "proto/wire/bytes.h"

namespace rlk::wire {

// A payload, by the position of its tensor in the message.
struct Payload {
  int field_number = 0;  // of the top-level tensor field
  int index = 0;         // within a repeated field; 0 otherwise
  HostBytes bytes;
};

struct SplitMessage {
  // Everything but payloads: a Tensor whose source is `data` has it set and empty here.
  std::unique_ptr<google::protobuf::Message> message;
  std::vector<Payload> payloads;
  int64_t message_bytes = 0;
};

// Splits `bytes` as a message of type `descriptor` (generated code). Errors (INVALID_ARGUMENT):
// kMalformedMessage (framing, wire types, groups, text that is not UTF-8, and any singular field,
// oneof or map key given twice), kUnknownField (at any depth, naming number and parent),
// kDuplicateTensor (a singular tensor given twice, or one with two sources), kUnknownEnumValue,
// kLimitExceeded (tensors above `tensors_max`, a nesting that is too deep, bytes beside payloads
// above `header_bytes_max`). Only tensors that are fields of the message itself are split; payloads
// are in the order of the bytes, one for each tensor whose source is `data`, empty ones included.
absl::StatusOr<SplitMessage> Split(const google::protobuf::Descriptor* descriptor,
                                   const InputBytes& bytes, int64_t tensors_max,
                                   int64_t header_bytes_max = INT64_MAX);

// Joins: serialises `message` with payloads in place of the empty `data` of their tensors. Each
// payload's tensor must be there with `data` set and empty; anything else is a bug of the caller
// and aborts. Deterministic: fields in number order, map entries sorted. Payload pieces are passed
// on with their owner, never copied.
OutputBytes Join(const google::protobuf::Message& message, std::vector<Payload> payloads);

}  // namespace rlk::wire
