// Typed request message -> Call, CallResult -> typed reply message.
#pragma once

#include "absl/status/statusor.h"
#include "google/protobuf/descriptor.h"
#include "kernels/core/limits.h"
#include "kernels/registry/call.h"
#include "proto/wire/bytes.h"
#include "proto/wire/codec.h"
#include "rlk/v1/call.pb.h"

namespace rlk::wire {

// Decodes a request of `method`. Checks what the wire alone can tell: framing, unknown fields,
// ranks, strides, overflow of sizes, payload length against shape, options' enums. What the
// signature says (dtypes, dims, ranges, presence) is the engine's contract check.
// `descriptor` is the request's; sources other than inline are decoded, not resolved.
absl::StatusOr<Call> DecodeCall(const Method& method,
                                const google::protobuf::Descriptor* descriptor,
                                const InputBytes& bytes, const Limits& limits);

// Encodes the reply without copying output payloads.
OutputBytes EncodeResult(const CallResult& result, const google::protobuf::Descriptor* descriptor,
                         std::string_view provenance_id);

// The report alone (also used by tests).
rlk::v1::CallReport ReportToProto(const CallResult& result, std::string_view provenance_id);

}  // namespace rlk::wire
