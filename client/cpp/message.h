// A call by names -> request message, reply message -> named outputs. Descriptor-driven: nothing
// here knows an operator.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "proto/wire/bytes.h"
#include "proto/wire/signatures.h"

namespace rlk::client {

// Encodes `request` for `method`. INVALID_ARGUMENT: kUnexpectedTensor, kUnknownField (attributes),
// kDuplicateTensor, kUnknownEnumValue, kAttributeOutOfRange (a value of the wrong type), each with
// the allowed set; kMessageTooLarge above `inline_bytes_max`.
absl::StatusOr<wire::OutputBytes> EncodeRequest(const wire::MethodBinding& method,
                                                const CallRequest& request,
                                                int64_t inline_bytes_max);

// Decodes a reply into outputs that own their bytes. INTERNAL where the reply contradicts itself
// (a payload whose length is not that of its shape).
absl::StatusOr<CallResult> DecodeReply(const wire::MethodBinding& method,
                                       const wire::InputBytes& bytes);

}  // namespace rlk::client
