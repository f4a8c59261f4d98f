#include "server/rpc/invocation.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "proto/wire/call_codec.h"
#include "proto/wire/call_parts.h"
#include "server/engine/host_memory.h"
#include "server/rpc/peer_messages.h"

namespace rlk::server {
namespace {

absl::StatusOr<Call> DecodeRequest(const rlk::v1::Invocation& invocation, const Method& method,
                                   const Limits& limits) {
  const google::protobuf::MethodDescriptor* const rpc = RpcOf(method);
  const std::string type = rpc == nullptr ? std::string() : rpc->input_type()->full_name();
  const std::string& url = invocation.request().type_url();
  if (url.substr(url.rfind('/') + 1) != type) {
    return InvalidArgument(Reason::kMalformedMessage, "invocation.request", url,
                           absl::StrCat("type.googleapis.com/", type),
                           "the request is of another method");
  }
  // The call keeps its elements.
  auto bytes = std::make_shared<const std::string>(invocation.request().value());
  wire::InputBytes input;
  input.pieces.emplace_back(reinterpret_cast<const std::byte*>(bytes->data()), bytes->size());
  input.owner = std::move(bytes);
  return wire::DecodeCall(method, rpc->input_type(), input, limits);
}

absl::Status NotTaken(const char* option) {
  return InvalidArgument(
      Reason::kUnknownOption, absl::StrCat("invocation.request.options.", option), "given",
      "contract, backend, mode, device_uuid, wanted_outputs", "a check takes no such option");
}

absl::Status CheckOptionsOf(const CallOptions& options) {
  if (!options.outputs.empty()) return NotTaken("outputs");
  if (options.verification != Verification::kNone) return NotTaken("verification");
  if (options.input_capture != InputCapture::kUnspecified) return NotTaken("input_capture");
  if (options.digest_tensors || options.digest_rows) return NotTaken("digests");
  // A check asks for no claim: what is claimed is what is checked.
  if (options.minimum_claim != ClaimLevel::kL1BatchInvariant) return NotTaken("minimum_claim");
  return absl::OkStatus();
}

absl::Status CheckInline(const std::string& field, const TensorArg& tensor) {
  if (tensor.source != TensorSource::kInline || tensor.data.size <= kInvocationInlineBytesMax) {
    return absl::OkStatus();
  }
  return InvalidArgument(Reason::kMessageTooLarge, field, absl::StrCat(tensor.data.size, " bytes"),
                         absl::StrCat("at most ", kInvocationInlineBytesMax,
                                      " bytes inline; a resident tensor for more"),
                         "the tensor is too large for a call as data");
}

}  // namespace

TensorSpec AnyTensor(std::string_view name) {
  TensorSpec spec;
  spec.name = std::string(name);
  for (int dtype = 1; dtype < kDTypeCount; ++dtype) {
    spec.dtypes.push_back(static_cast<DType>(dtype));
  }
  return spec;
}

absl::StatusOr<HostTensor> ValueReader::ToHost(const std::string& field, TensorArg tensor) const {
  RLK_RETURN_IF_ERROR(CheckInline(field, tensor));
  if (tensor.source == TensorSource::kArena) {
    return InvalidArgument(Reason::kSourceNotSupported, field, "arena", "data (inline), resident",
                           "a check takes no tensor that its caller can write meanwhile");
  }
  if (tensor.source == TensorSource::kResident) {
    const TensorHandle handle = tensor.resident;
    RLK_RETURN_IF_ERROR(store_->Resolve(session_.get(), field, tensor));
    if (tensor.memory->device().kind != DeviceKind::kHost && tensor.data.size > 0) {
      RLK_ASSIGN_OR_RETURN(const auto download,
                           store_->Download(session_.get(), handle, tensor.data.size));
      RLK_ASSIGN_OR_RETURN(tensor.data, download->Next(tensor.data.size));
    }
    // The elements are kept for the time of the check, while others may write into the tensor.
    RLK_ASSIGN_OR_RETURN(tensor.data, CopyBytes(tensor.data, kHostAlignment));
  }
  return ToHostTensor({tensor.dtype, tensor.shape, tensor.strides, nullptr}, tensor.data);
}

absl::StatusOr<DecodedInvocation> ValueReader::Read(const rlk::v1::Invocation& invocation) const {
  const Limits& limits = engine_.options().limits;
  RLK_RETURN_IF_ERROR(wire::CheckText("invocation.method", invocation.method(), limits));
  const Method* const method = engine_.registry().Find(invocation.method());
  if (method == nullptr) {
    std::string allowed;
    for (const auto& known : engine_.registry().methods()) {
      absl::StrAppend(&allowed, allowed.empty() ? "" : ", ", known->decl.method);
    }
    return InvalidArgument(Reason::kUnknownOperator, "invocation.method", invocation.method(),
                           allowed, "no operator has this method");
  }
  RLK_ASSIGN_OR_RETURN(Call call, DecodeRequest(invocation, *method, limits));
  RLK_RETURN_IF_ERROR(CheckOptionsOf(call.options));
  DecodedInvocation decoded;
  decoded.call.method = method;
  decoded.call.attributes = std::move(call.attributes);
  decoded.call.wanted_outputs = std::move(call.options.wanted_outputs);
  for (TensorArg& input : call.inputs) {
    const int32_t spec = input.spec;
    const std::string& name = method->signature.inputs[static_cast<size_t>(spec)].name;
    RLK_ASSIGN_OR_RETURN(HostTensor tensor, ToHost(name, std::move(input)));
    decoded.call.inputs.push_back({spec, std::move(tensor)});
  }
  decoded.options = std::move(call.options);
  return decoded;
}

absl::StatusOr<std::map<std::string, HostTensor>> ValueReader::Read(
    const std::string& field,
    const google::protobuf::RepeatedPtrField<rlk::v1::NamedTensor>& tensors) const {
  const Limits& limits = engine_.options().limits;
  if (tensors.size() > limits.tensors_per_call_max) {
    return InvalidArgument(
        Reason::kLimitExceeded, field, absl::StrCat(tensors.size()),
        absl::StrCat("at most ", limits.tensors_per_call_max, " (tensors_per_call_max)"),
        "too many tensors");
  }
  std::map<std::string, HostTensor> named;
  for (const rlk::v1::NamedTensor& each : tensors) {
    RLK_RETURN_IF_ERROR(wire::CheckText(absl::StrCat(field, ".name"), each.name(), limits));
    const std::string name = absl::StrCat(field, ".", each.name());
    HostBytes payload;
    auto bytes = std::make_shared<const std::string>(each.tensor().data());
    payload.size = static_cast<int64_t>(bytes->size());
    payload.pieces.emplace_back(reinterpret_cast<const std::byte*>(bytes->data()), bytes->size());
    payload.owner = std::move(bytes);
    RLK_ASSIGN_OR_RETURN(
        TensorArg arg, wire::DecodeTensor(AnyTensor(name), name, each.tensor(), &payload, limits));
    RLK_ASSIGN_OR_RETURN(HostTensor tensor, ToHost(name, std::move(arg)));
    if (!named.emplace(each.name(), std::move(tensor)).second) {
      return InvalidArgument(Reason::kDuplicateTensor, name, "given more than once", "one tensor",
                             "the name is taken");
    }
  }
  return named;
}

}  // namespace rlk::server
