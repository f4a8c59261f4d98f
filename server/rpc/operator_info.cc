#include "server/rpc/operator_info.h"

#include <string>

#include "google/protobuf/descriptor.h"
#include "rlk/v1/contract.pb.h"

namespace rlk::server {
namespace {

using google::protobuf::FieldDescriptor;

// "/rlk.v1.X/Y" -> the descriptor of Y; null where there is none.
const google::protobuf::MethodDescriptor* FindDescriptor(const std::string& rpc) {
  std::string name = rpc.substr(1);
  name[name.rfind('/')] = '.';
  return google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(name);
}

std::string AttributeType(const FieldDescriptor* field) {
  if (field->type() == FieldDescriptor::TYPE_ENUM) return field->enum_type()->full_name();
  return field->type_name();
}

void FillTensors(const google::protobuf::Descriptor* message,
                 google::protobuf::RepeatedPtrField<rlk::v1::TensorInfo>* out) {
  for (int i = 0; i < message->field_count(); ++i) {
    const FieldDescriptor* field = message->field(i);
    if (!field->options().HasExtension(rlk::v1::tensor)) continue;
    rlk::v1::TensorInfo* info = out->Add();
    info->set_name(field->name());
    *info->mutable_options() = field->options().GetExtension(rlk::v1::tensor);
  }
}

void FillAttributes(const google::protobuf::Descriptor* message, rlk::v1::MethodInfo& out) {
  for (int i = 0; i < message->field_count(); ++i) {
    const FieldDescriptor* field = message->field(i);
    if (!field->options().HasExtension(rlk::v1::attribute)) continue;
    rlk::v1::AttributeInfo* info = out.add_attributes();
    info->set_name(field->name());
    info->set_type(AttributeType(field));
    *info->mutable_options() = field->options().GetExtension(rlk::v1::attribute);
  }
}

// Why the variant cannot run here; empty where it can.
std::string Unavailability(const Registry& registry, const DeviceTraits& device,
                           const Variant& variant) {
  const BackendState& state = registry.backend(variant.backend);
  if (!state.available) return state.reason;
  if (BackendDevice(variant.backend) != DeviceKind::kCuda) return "";
  if (variant.needs_step_law && !state.step_law_reason.empty()) return state.step_law_reason;
  return WhyUnfit(variant, device);
}

void FillContract(const Registry& registry, const DeviceTraits& device, const Method& method,
                  const Contract& contract, rlk::v1::ContractInfo& out) {
  out.set_id(contract.id);
  out.set_arithmetic(contract.arithmetic);
  for (const Variant& variant : method.decl.variants) {
    for (const ContractClaim& claim : variant.contracts) {
      if (claim.contract != contract.id) continue;
      const std::string why = Unavailability(registry, device, variant);
      rlk::v1::VariantInfo* info = out.add_variants();
      info->set_backend(std::string(BackendName(variant.backend)));
      info->set_kernel(variant.kernel);
      info->set_available(why.empty());
      info->set_reason(why);
      info->set_claim(static_cast<rlk::v1::ClaimLevel>(claim.On(device.compute_capability)));
    }
  }
}

}  // namespace

void FillMethodInfo(const Registry& registry, const DeviceTraits& device, const Method& method,
                    rlk::v1::MethodInfo& out) {
  const MethodSignature& signature = method.signature;
  out.set_method(signature.method);
  out.set_rpc(signature.rpc);
  out.set_direction(static_cast<rlk::v1::Direction>(signature.direction));
  out.set_op_class(static_cast<rlk::v1::OpClass>(signature.op_class));
  for (const Contract& contract : method.decl.contracts) {
    FillContract(registry, device, method, contract, *out.add_contracts());
  }
  const google::protobuf::MethodDescriptor* descriptor = FindDescriptor(signature.rpc);
  if (descriptor == nullptr) return;
  FillTensors(descriptor->input_type(), out.mutable_inputs());
  FillAttributes(descriptor->input_type(), out);
  FillTensors(descriptor->output_type(), out.mutable_outputs());
}

}  // namespace rlk::server
