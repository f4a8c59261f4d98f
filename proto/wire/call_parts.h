// The parts of DecodeCall: one file for tensors, one for options.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/descriptor.h"
#include "kernels/core/limits.h"
#include "kernels/registry/call.h"
#include "kernels/registry/signature.h"
#include "proto/wire/bytes.h"
#include "proto/wire/tensor_reader.h"
#include "rlk/v1/call.pb.h"
#include "rlk/v1/tensor.pb.h"

namespace rlk::wire {

// INVALID_ARGUMENT (kMessageTooLarge) above limits.inline_bytes_max.
absl::Status CheckMessageSize(const InputBytes& bytes, const Limits& limits);

// A tensor's header as it was given.
struct TensorHead {
  DType dtype = DType::kUnspecified;
  std::span<const int64_t> shape;
  std::span<const int64_t> strides;  // empty: C order
};

// Checks the header of a tensor named `name` ("x", "xs[2]") against itself and against the source.
// TensorArg::spec is the caller's to set.
absl::StatusOr<TensorArg> CheckTensor(const TensorSpec& spec, std::string_view name,
                                      const TensorHead& head, GivenSource source,
                                      const Limits& limits);

// Decodes a request as clients usually write it, straight into a call: every field once and in the
// spelling that protobuf writes. Anything else, errors included, is nullopt and left to the general
// way, which takes several times as long and explains what it refuses.
std::optional<Call> DecodeCommonCall(const Method& method, const InputBytes& bytes,
                                     const Limits& limits);

// The general way: everything that DecodeCall promises but the bound on the message's size. Where
// DecodeCommonCall takes a request, both give the same call (the fuzz targets hold them to it).
absl::StatusOr<Call> DecodeAnyCall(const Method& method,
                                   const google::protobuf::Descriptor* descriptor,
                                   const InputBytes& bytes, const Limits& limits);

// CheckTensor of a message. Takes `payload` (null where the source is not `data`).
absl::StatusOr<TensorArg> DecodeTensor(const TensorSpec& spec, std::string_view name,
                                       const rlk::v1::Tensor& tensor, HostBytes* payload,
                                       const Limits& limits);

// Decodes the options and checks the names in them that the signature knows.
absl::Status DecodeOptions(const rlk::v1::CallOptions& options, const MethodSignature& signature,
                           const Limits& limits, CallOptions* out);

// Of enum numbers that exist: others are refused with the message.
ClaimLevel ToClaim(rlk::v1::ClaimLevel claim);
InputCapture ToCapture(rlk::v1::InputCapture capture);
Verification ToVerification(rlk::v1::Verification verification);

// DecodeOptions from the length of the field on, as clients usually write it; false for anything
// else.
bool ReadOptions(PieceReader& reader, const MethodSignature& signature, const Limits& limits,
                 CallOptions* out);

// Refuses texts of a request that are longer than limits.attribute_text_bytes_max.
absl::Status CheckText(std::string_view field, std::string_view text, const Limits& limits);

TensorHandle DecodeHandle(const rlk::v1::TensorHandle& handle);
ArenaSlot DecodeArena(const rlk::v1::ArenaRef& arena);

}  // namespace rlk::wire
