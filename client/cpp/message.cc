#include "client/cpp/message.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "google/protobuf/message.h"
#include "kernels/core/status.h"
#include "proto/wire/codec.h"
#include "rlk/v1/tensor.pb.h"

namespace rlk::client {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MessageFactory;

constexpr int64_t kTensorsMax = 64;

template <typename Spec>
std::string Names(const std::vector<Spec>& specs) {
  std::vector<std::string> names;
  for (const Spec& spec : specs) names.push_back(spec.name);
  return names.empty() ? "none" : JoinNames(names);
}

template <typename Spec>
const Spec* FindSpec(const std::vector<Spec>& specs, const std::string& name) {
  for (const Spec& spec : specs) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

absl::Status WrongAttribute(const AttributeSpec& spec, Reason reason, const std::string& value,
                            const std::string& allowed) {
  return InvalidArgument(reason, spec.name, value, allowed, "the value is not allowed");
}

std::string AttributeText(const Attribute& value) {
  struct Visitor {
    std::string operator()(double v) const { return std::to_string(v); }
    std::string operator()(int64_t v) const { return std::to_string(v); }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(DType v) const { return std::string(DTypeName(v)); }
    std::string operator()(const std::string& v) const { return v; }
  };
  return std::visit(Visitor(), value);
}

absl::Status SetEnum(const AttributeSpec& spec, const Attribute& value,
                     const FieldDescriptor* field, Message* message) {
  int number = -1;
  if (const auto* name = std::get_if<std::string>(&value)) {
    for (const auto& [candidate, text] : spec.enumerators) {
      if (text == *name) number = static_cast<int>(candidate);
    }
  }
  if (number < 0) {
    std::vector<std::string> names;
    for (const auto& [candidate, text] : spec.enumerators) names.push_back(text);
    return WrongAttribute(spec, Reason::kUnknownEnumValue, AttributeText(value), JoinNames(names));
  }
  message->GetReflection()->SetEnumValue(message, field, number);
  return absl::OkStatus();
}

absl::Status SetAttribute(const AttributeSpec& spec, const Attribute& value, Message* message) {
  const auto* reflection = message->GetReflection();
  const FieldDescriptor* field = message->GetDescriptor()->FindFieldByNumber(spec.field_number);
  const auto* integer = std::get_if<int64_t>(&value);
  const char* allowed = "a number";
  switch (spec.kind) {
    case AttributeKind::kF32:
    case AttributeKind::kF64:
      if (const auto* number = std::get_if<double>(&value)) {
        reflection->SetDouble(message, field, *number);
        return absl::OkStatus();
      }
      if (integer != nullptr) {
        reflection->SetDouble(message, field, static_cast<double>(*integer));
        return absl::OkStatus();
      }
      break;
    case AttributeKind::kI64:
      if (integer != nullptr) {
        reflection->SetInt64(message, field, *integer);
        return absl::OkStatus();
      }
      allowed = "an integer";
      break;
    case AttributeKind::kBool:
      if (const auto* boolean = std::get_if<bool>(&value)) {
        reflection->SetBool(message, field, *boolean);
        return absl::OkStatus();
      }
      allowed = "true or false";
      break;
    case AttributeKind::kDType:
      if (const auto* dtype = std::get_if<DType>(&value)) {
        reflection->SetEnumValue(message, field, static_cast<int>(*dtype));
        return absl::OkStatus();
      }
      allowed = "a dtype";
      break;
    case AttributeKind::kEnum:
      return SetEnum(spec, value, field, message);
  }
  return WrongAttribute(spec, Reason::kAttributeOutOfRange, AttributeText(value), allowed);
}

absl::StatusOr<wire::Payload> AddTensor(const TensorSpec& spec, const TensorRef& ref,
                                        Message* message) {
  const auto* reflection = message->GetReflection();
  const FieldDescriptor* field = message->GetDescriptor()->FindFieldByNumber(spec.field_number);
  wire::Payload payload;
  payload.field_number = spec.field_number;
  if (field->is_repeated()) {
    payload.index = reflection->FieldSize(*message, field);
  } else if (reflection->HasField(*message, field)) {
    return InvalidArgument(Reason::kDuplicateTensor, spec.name, "2", "1",
                           "the tensor is given more than once");
  }
  RLK_ASSIGN_OR_RETURN(const int64_t bytes, SourceBytes(ref, spec.name));
  auto* tensor = static_cast<rlk::v1::Tensor*>(field->is_repeated()
                                                   ? reflection->AddMessage(message, field)
                                                   : reflection->MutableMessage(message, field));
  tensor->set_dtype(static_cast<rlk::v1::DataType>(ref.dtype));
  for (int64_t size : ref.shape) tensor->add_shape(size);
  if (ref.strides) {
    for (int64_t stride : *ref.strides) tensor->add_strides(stride);
  }
  tensor->mutable_data();
  payload.bytes.size = bytes;
  payload.bytes.owner = ref.owner;
  if (bytes > 0) {
    payload.bytes.pieces.push_back(
        {static_cast<const std::byte*>(ref.data), static_cast<size_t>(bytes)});
  }
  return payload;
}

std::unique_ptr<Message> NewMessage(const google::protobuf::Descriptor* descriptor) {
  return std::unique_ptr<Message>(
      MessageFactory::generated_factory()->GetPrototype(descriptor)->New());
}

absl::StatusOr<Tensor> TakeTensor(const std::string& name, const rlk::v1::Tensor& header,
                                  const HostBytes* payload) {
  const auto contradiction = [&name](const std::string& what) {
    return MakeError(absl::StatusCode::kInternal, {Reason::kInternal, name, "", "", 0},
                     "the reply contradicts itself: " + what);
  };
  if (header.source_case() != rlk::v1::Tensor::kData) return contradiction("it is not inline");
  if (header.strides_size() != 0) return contradiction("it has strides");
  const int64_t size = payload == nullptr ? 0 : payload->size;
  const std::vector<int64_t> shape(header.shape().begin(), header.shape().end());
  // The size of the shape is compared before memory is taken for it.
  if (shape.size() > kMaxRank) return contradiction("its rank is above 8");
  const char somewhere = 0;
  RLK_ASSIGN_OR_RETURN(
      const int64_t expected,
      SourceBytes(
          {.dtype = static_cast<DType>(header.dtype()), .shape = Dims(shape), .data = &somewhere},
          name));
  if (expected != size) {
    return contradiction(std::to_string(size) + " bytes, but its shape has " +
                         std::to_string(expected));
  }
  RLK_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(static_cast<DType>(header.dtype()), shape));
  std::byte* to = tensor.mutable_bytes().data();
  if (payload != nullptr) {
    for (const auto& piece : payload->pieces) {
      if (!piece.empty()) std::memcpy(to, piece.data(), piece.size());
      to += piece.size();
    }
  }
  return tensor;
}

absl::Status CheckSize(int64_t size, int64_t inline_bytes_max) {
  if (size <= inline_bytes_max) return absl::OkStatus();
  return InvalidArgument(
      Reason::kMessageTooLarge, "request", std::to_string(size) + " bytes",
      "at most " + std::to_string(inline_bytes_max) + " bytes (inline_bytes_max)",
      "the call's message is too large to travel inline");
}

// The server counts the whole message, framing included.
int64_t MessageBytes(const wire::OutputBytes& message) {
  size_t size = 0;
  for (const wire::OutputPiece& piece : message) size += piece.text.size() + piece.payload.size();
  return static_cast<int64_t>(size);
}

}  // namespace

absl::StatusOr<wire::OutputBytes> EncodeRequest(const wire::MethodBinding& method,
                                                const CallRequest& request,
                                                int64_t inline_bytes_max) {
  const MethodSignature& signature = method.signature;
  std::unique_ptr<Message> message = NewMessage(method.descriptor->input_type());
  std::vector<wire::Payload> payloads;
  for (const auto& [name, ref] : request.inputs) {
    const TensorSpec* spec = FindSpec(signature.inputs, name);
    if (spec == nullptr) {
      return InvalidArgument(Reason::kUnexpectedTensor, name, "", Names(signature.inputs),
                             signature.method + " takes no tensor of this name");
    }
    RLK_ASSIGN_OR_RETURN(wire::Payload payload, AddTensor(*spec, ref, message.get()));
    // Each one alone first, so that the sum of all cannot overflow.
    RLK_RETURN_IF_ERROR(CheckSize(payload.bytes.size, inline_bytes_max));
    payloads.push_back(std::move(payload));
  }
  for (const auto& [name, value] : request.attributes) {
    const AttributeSpec* spec = FindSpec(signature.attributes, name);
    if (spec == nullptr) {
      return InvalidArgument(Reason::kUnknownField, name, "", Names(signature.attributes),
                             signature.method + " takes no attribute of this name");
    }
    RLK_RETURN_IF_ERROR(SetAttribute(*spec, value, message.get()));
  }
  if (request.options.ByteSizeLong() != 0) {
    const FieldDescriptor* options = message->GetDescriptor()->FindFieldByName("options");
    message->GetReflection()->MutableMessage(message.get(), options)->CopyFrom(request.options);
  }
  wire::OutputBytes bytes = wire::Join(*message, std::move(payloads));
  RLK_RETURN_IF_ERROR(CheckSize(MessageBytes(bytes), inline_bytes_max));
  return bytes;
}

absl::StatusOr<CallResult> DecodeReply(const wire::MethodBinding& method,
                                       const wire::InputBytes& bytes) {
  RLK_ASSIGN_OR_RETURN(wire::SplitMessage split,
                       wire::Split(method.descriptor->output_type(), bytes, kTensorsMax,
                                   wire::SplitChecks::kFraming));
  const auto* reflection = split.message->GetReflection();
  CallResult result;
  result.outputs.reserve(method.signature.outputs.size());
  for (const TensorSpec& spec : method.signature.outputs) {
    const FieldDescriptor* field =
        split.message->GetDescriptor()->FindFieldByNumber(spec.field_number);
    if (field->is_repeated() || !reflection->HasField(*split.message, field)) continue;
    const auto& header =
        static_cast<const rlk::v1::Tensor&>(reflection->GetMessage(*split.message, field));
    const auto payload =
        std::find_if(split.payloads.begin(), split.payloads.end(),
                     [&spec](const auto& p) { return p.field_number == spec.field_number; });
    RLK_ASSIGN_OR_RETURN(
        Tensor tensor,
        TakeTensor(spec.name, header, payload == split.payloads.end() ? nullptr : &payload->bytes));
    result.outputs.emplace_back(spec.name, std::move(tensor));
  }
  if (const FieldDescriptor* report = split.message->GetDescriptor()->FindFieldByName("report")) {
    // Taken, not copied: the report is most of a small reply.
    if (reflection->HasField(*split.message, report)) {
      result.report.Swap(static_cast<rlk::v1::CallReport*>(
          reflection->MutableMessage(split.message.get(), report)));
    }
  }
  return result;
}

}  // namespace rlk::client
