#include "server/rpc/peer_messages.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "google/protobuf/message.h"
#include "kernels/core/checked_math.h"
#include "kernels/core/status.h"
#include "proto/wire/codec.h"
#include "proto/wire/signatures.h"
#include "rlk/v1/call.pb.h"

namespace rlk::server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MessageFactory;
using google::protobuf::Reflection;

void FillTensor(const HostTensor& from, rlk::v1::Tensor& to) {
  to.set_dtype(static_cast<rlk::v1::DataType>(from.dtype));
  for (const int64_t size : from.shape) to.add_shape(size);
}

void SetAttribute(const AttributeSpec& spec, const Call::GivenAttribute& given, Message& message) {
  const Reflection& reflection = *message.GetReflection();
  const FieldDescriptor* const field =
      message.GetDescriptor()->FindFieldByNumber(spec.field_number);
  switch (spec.kind) {
    case AttributeKind::kF32:
    case AttributeKind::kF64:
      reflection.SetDouble(&message, field, given.number);
      break;
    case AttributeKind::kI64:
      reflection.SetInt64(&message, field, given.integer);
      break;
    case AttributeKind::kBool:
      reflection.SetBool(&message, field, given.integer != 0);
      break;
    case AttributeKind::kDType:
    case AttributeKind::kEnum:
      reflection.SetEnumValue(&message, field, static_cast<int>(given.integer));
      break;
  }
}

void FillOptions(const ValueCall& call, const SideOptions& options, rlk::v1::CallOptions& out) {
  out.set_contract(ContractFor(*call.method, options.contracts));
  out.set_backend(options.backend);
  out.set_device_uuid(options.device_uuid);
  out.set_mode(options.allow_fallback ? rlk::v1::MODE_AUTO : rlk::v1::MODE_STRICT);
  // The lowest that can be asked for: what is claimed is what is checked.
  out.set_minimum_claim(rlk::v1::CLAIM_LEVEL_L0_REPEATABLE);
  if (options.digests) out.add_digests(rlk::v1::DIGEST_SCOPE_TENSOR);
  for (const std::string& name : call.wanted_outputs) out.add_wanted_outputs(name);
}

absl::Status Malformed(std::string_view what) { return absl::InternalError(std::string(what)); }

absl::StatusOr<PeerOutput> DecodeOutput(int32_t spec, const rlk::v1::Tensor& tensor,
                                        const HostBytes* payload) {
  PeerOutput output;
  output.spec = spec;
  RLK_ASSIGN_OR_RETURN(const Dims shape, PeerShape(tensor));
  if (tensor.has_resident()) {
    output.resident = tensor;
    return output;
  }
  const TensorView view{static_cast<DType>(tensor.dtype()), shape, ContiguousStrides(shape),
                        nullptr};
  if (payload == nullptr || payload->size != view.bytes()) {
    return Malformed("an output does not have the bytes of its shape");
  }
  RLK_ASSIGN_OR_RETURN(output.tensor, ToHostTensor(view, *payload));
  return output;
}

}  // namespace

const google::protobuf::MethodDescriptor* RpcOf(const Method& method) {
  const std::string name = absl::StrReplaceAll(method.signature.rpc.substr(1), {{"/", "."}});
  return DescriptorPool::generated_pool()->FindMethodByName(name);
}

absl::StatusOr<wire::OutputBytes> EncodePeerCall(
    const ValueCall& call, const SideOptions& options,
    const std::map<int32_t, rlk::v1::TensorHandle>& handles) {
  const google::protobuf::MethodDescriptor* const rpc = RpcOf(*call.method);
  if (rpc == nullptr) {
    return InvalidArgument(Reason::kUnknownOperator, "method", call.method->decl.method,
                           "the methods of the API", "no server can be asked for this method");
  }
  const std::unique_ptr<Message> message(
      MessageFactory::generated_factory()->GetPrototype(rpc->input_type())->New());
  const Reflection& reflection = *message->GetReflection();
  const Descriptor& descriptor = *message->GetDescriptor();
  const auto field = [&descriptor](int number) { return descriptor.FindFieldByNumber(number); };
  std::vector<wire::Payload> payloads;
  for (const ValueInput& input : call.inputs) {
    const TensorSpec& spec = call.signature().inputs[static_cast<size_t>(input.spec)];
    const FieldDescriptor* const at = field(spec.field_number);
    const int index = spec.repeated ? reflection.FieldSize(*message, at) : 0;
    Message* const made = spec.repeated ? reflection.AddMessage(message.get(), at)
                                        : reflection.MutableMessage(message.get(), at);
    auto& tensor = static_cast<rlk::v1::Tensor&>(*made);
    FillTensor(input.tensor, tensor);
    if (const auto handle = handles.find(input.spec); handle != handles.end()) {
      *tensor.mutable_resident() = handle->second;
      continue;
    }
    tensor.set_data("");
    payloads.push_back({spec.field_number, index, ToHostBytes(input.tensor)});
  }
  for (const Call::GivenAttribute& given : call.attributes) {
    SetAttribute(call.signature().attributes[static_cast<size_t>(given.spec)], given, *message);
  }
  FillOptions(call, options,
              static_cast<rlk::v1::CallOptions&>(
                  *reflection.MutableMessage(message.get(), field(wire::kOptionsFieldNumber))));
  return wire::Join(*message, std::move(payloads));
}

absl::StatusOr<PeerReply> DecodePeerReply(const ValueCall& call, const wire::InputBytes& bytes,
                                          const Limits& limits) {
  const google::protobuf::MethodDescriptor* const rpc = RpcOf(*call.method);
  RLK_ASSIGN_OR_RETURN(wire::SplitMessage split,
                       wire::Split(rpc->output_type(), bytes, limits.tensors_per_call_max));
  const Message& message = *split.message;
  const Reflection& reflection = *message.GetReflection();
  PeerReply reply;
  const std::vector<TensorSpec>& specs = call.signature().outputs;
  for (size_t i = 0; i < specs.size(); ++i) {
    const FieldDescriptor* const field =
        message.GetDescriptor()->FindFieldByNumber(specs[i].field_number);
    if (!reflection.HasField(message, field)) continue;
    const HostBytes* payload = nullptr;
    for (const wire::Payload& candidate : split.payloads) {
      if (candidate.field_number == specs[i].field_number) payload = &candidate.bytes;
    }
    RLK_ASSIGN_OR_RETURN(
        PeerOutput output,
        DecodeOutput(static_cast<int32_t>(i),
                     static_cast<const rlk::v1::Tensor&>(reflection.GetMessage(message, field)),
                     payload));
    reply.outputs.push_back(std::move(output));
  }
  const FieldDescriptor* const report =
      message.GetDescriptor()->FindFieldByNumber(wire::kReportFieldNumber);
  reply.report = reflection.GetMessage(message, report).SerializeAsString();
  return reply;
}

absl::StatusOr<Dims> PeerShape(const rlk::v1::Tensor& tensor) {
  if (tensor.shape_size() > kMaxRank) return Malformed("an output has too many dimensions");
  Dims shape;
  for (const int64_t size : tensor.shape()) {
    if (size < 0) return Malformed("an output has a negative size");
    shape.push_back(size);
  }
  const std::optional<int64_t> elements = CheckedProduct(shape.span());
  const int64_t size = DTypeSize(static_cast<DType>(tensor.dtype()));
  if (!elements || size == 0 || !CheckedMul(*elements, size)) {
    return Malformed("an output has a size that cannot be");
  }
  return shape;
}

}  // namespace rlk::server
