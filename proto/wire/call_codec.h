// Typed request message -> Call, CallResult -> typed reply message.
#pragma once

#include <string_view>

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
// Names in options.outputs and options.wanted_outputs are checked against the signature. A message
// above limits.inline_bytes_max, framing included, is kMessageTooLarge. `received`, `deadline`,
// `cancelled` and `trace_id` are left to the caller.
// `descriptor` is the request's; sources other than inline are decoded, not resolved.
absl::StatusOr<Call> DecodeCall(const Method& method,
                                const google::protobuf::Descriptor* descriptor,
                                const InputBytes& bytes, const Limits& limits);

// What a report says that the engine's result does not hold. Texts are copied into the report.
struct ReportContext {
  std::string_view provenance_id;
  // Put into the report of a REFERENCE verification.
  std::string_view tolerance_contract_version;
  std::string_view tolerance_contract_sha256;
};

// Encodes the reply without copying output payloads.
OutputBytes EncodeResult(const CallResult& result, const google::protobuf::Descriptor* descriptor,
                         const ReportContext& context);
OutputBytes EncodeResult(const CallResult& result, const google::protobuf::Descriptor* descriptor,
                         std::string_view provenance_id);

// The report alone (also used by tests).
rlk::v1::CallReport ReportToProto(const CallResult& result, const ReportContext& context);
rlk::v1::CallReport ReportToProto(const CallResult& result, std::string_view provenance_id);

}  // namespace rlk::wire
