// The parts of DecodeCall: one file for tensors, one for options.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/limits.h"
#include "kernels/registry/call.h"
#include "kernels/registry/signature.h"
#include "rlk/v1/call.pb.h"
#include "rlk/v1/tensor.pb.h"

namespace rlk::wire {

// Decodes one tensor named `name` ("x", "xs[2]") and checks its header against itself and against
// the payload's length. Takes `payload` (null where the source is not `data`). TensorArg::spec is
// the caller's to set.
absl::StatusOr<TensorArg> DecodeTensor(const TensorSpec& spec, std::string_view name,
                                       const rlk::v1::Tensor& tensor, HostBytes* payload,
                                       const Limits& limits);

// Decodes the options and checks the names in them that the signature knows.
absl::Status DecodeOptions(const rlk::v1::CallOptions& options, const MethodSignature& signature,
                           const Limits& limits, CallOptions* out);

// Refuses texts of a request that are longer than limits.attribute_text_bytes_max.
absl::Status CheckText(std::string_view field, std::string_view text, const Limits& limits);

// Decodes a place in an arena; `field` names it in errors.
absl::StatusOr<ArenaSlot> DecodeArena(std::string_view field, const rlk::v1::ArenaRef& arena,
                                      const Limits& limits);

}  // namespace rlk::wire
