#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "proto/wire/call_codec.h"
#include "proto/wire/call_parts.h"
#include "proto/wire/check.h"
#include "proto/wire/signatures.h"

namespace rlk::wire {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Fills Call from the parts of a split message.
class CallDecoder {
 public:
  CallDecoder(const MethodSignature& signature, SplitMessage& split, const Limits& limits)
      : signature_(signature),
        limits_(limits),
        message_(*split.message),
        reflection_(*message_.GetReflection()),
        descriptor_(*message_.GetDescriptor()),
        payloads_(split.payloads) {}

  absl::Status Run(Call* call) {
    for (size_t i = 0; i < signature_.inputs.size(); ++i) {
      RLK_RETURN_IF_ERROR(Input(static_cast<int32_t>(i), call));
    }
    for (size_t i = 0; i < signature_.attributes.size(); ++i) {
      Attribute(static_cast<int32_t>(i), call);
    }
    const FieldDescriptor* options = descriptor_.FindFieldByNumber(kOptionsFieldNumber);
    if (options == nullptr || !reflection_.HasField(message_, options)) return absl::OkStatus();
    return DecodeOptions(
        static_cast<const rlk::v1::CallOptions&>(reflection_.GetMessage(message_, options)),
        signature_, limits_, &call->options);
  }

 private:
  static const rlk::v1::Tensor& AsTensor(const Message& message) {
    return static_cast<const rlk::v1::Tensor&>(message);
  }

  absl::Status Input(int32_t index, Call* call) {
    const TensorSpec& spec = signature_.inputs[static_cast<size_t>(index)];
    const FieldDescriptor* field = descriptor_.FindFieldByNumber(spec.field_number);
    Check(field != nullptr, "is bound to another request type", signature_.method);
    if (!field->is_repeated()) {
      if (!reflection_.HasField(message_, field)) return absl::OkStatus();
      const rlk::v1::Tensor& tensor = AsTensor(reflection_.GetMessage(message_, field));
      return Tensor(index, spec.name, 0, tensor, call);
    }
    const int count = reflection_.FieldSize(message_, field);
    if (count > spec.max_count) {
      return InvalidArgument(Reason::kLimitExceeded, spec.name, std::to_string(count),
                             absl::StrCat("at most ", spec.max_count, " (max_count)"),
                             "too many tensors");
    }
    for (int i = 0; i < count; ++i) {
      const rlk::v1::Tensor& tensor = AsTensor(reflection_.GetRepeatedMessage(message_, field, i));
      RLK_RETURN_IF_ERROR(Tensor(index, absl::StrCat(spec.name, "[", i, "]"), i, tensor, call));
    }
    return absl::OkStatus();
  }

  absl::Status Tensor(int32_t spec_index, std::string_view name, int index,
                      const rlk::v1::Tensor& tensor, Call* call) {
    const TensorSpec& spec = signature_.inputs[static_cast<size_t>(spec_index)];
    HostBytes* payload = nullptr;
    for (Payload& candidate : payloads_) {
      if (candidate.field_number == spec.field_number && candidate.index == index) {
        payload = &candidate.bytes;
      }
    }
    RLK_ASSIGN_OR_RETURN(TensorArg arg, DecodeTensor(spec, name, tensor, payload, limits_));
    arg.spec = spec_index;
    call->inputs.push_back(std::move(arg));
    return absl::OkStatus();
  }

  void Attribute(int32_t index, Call* call) {
    const AttributeSpec& spec = signature_.attributes[static_cast<size_t>(index)];
    const FieldDescriptor* field = descriptor_.FindFieldByNumber(spec.field_number);
    Check(field != nullptr, "is bound to another request type", signature_.method);
    if (!reflection_.HasField(message_, field)) return;
    Call::GivenAttribute& given = call->attributes.emplace_back();
    given.spec = index;
    switch (spec.kind) {
      case AttributeKind::kF32:
      case AttributeKind::kF64:
        given.number = reflection_.GetDouble(message_, field);
        break;
      case AttributeKind::kI64:
        given.integer = reflection_.GetInt64(message_, field);
        break;
      case AttributeKind::kBool:
        given.integer = reflection_.GetBool(message_, field) ? 1 : 0;
        break;
      case AttributeKind::kDType:
      case AttributeKind::kEnum:
        given.integer = reflection_.GetEnumValue(message_, field);
        break;
    }
  }

  const MethodSignature& signature_;
  const Limits& limits_;
  const Message& message_;
  const Reflection& reflection_;
  const Descriptor& descriptor_;
  std::vector<Payload>& payloads_;
};

}  // namespace

absl::Status CheckMessageSize(const InputBytes& bytes, const Limits& limits) {
  int64_t size = 0;
  for (const auto& piece : bytes.pieces) size += static_cast<int64_t>(piece.size());
  if (size <= limits.inline_bytes_max) return absl::OkStatus();
  return InvalidArgument(
      Reason::kMessageTooLarge, "request", absl::StrCat(size, " bytes"),
      absl::StrCat("at most ", limits.inline_bytes_max, " bytes (inline_bytes_max)"),
      "the message is too large");
}

absl::StatusOr<Call> DecodeAnyCall(const Method& method, const Descriptor* descriptor,
                                   const InputBytes& bytes, const Limits& limits) {
  RLK_ASSIGN_OR_RETURN(SplitMessage split, Split(descriptor, bytes, limits.tensors_per_call_max,
                                                 limits.header_bytes_max));
  Call call;
  call.method = &method;
  call.message_bytes = split.message_bytes;
  call.inputs.reserve(method.signature.inputs.size());
  RLK_RETURN_IF_ERROR(CallDecoder(method.signature, split, limits).Run(&call));
  return call;
}

absl::StatusOr<Call> DecodeCall(const Method& method, const Descriptor* descriptor,
                                const InputBytes& bytes, const Limits& limits) {
  RLK_RETURN_IF_ERROR(CheckMessageSize(bytes, limits));
  if (std::optional<Call> common = DecodeCommonCall(method, bytes, limits)) {
    return *std::move(common);
  }
  return DecodeAnyCall(method, descriptor, bytes, limits);
}

}  // namespace rlk::wire
