#include <string>
#include <utility>

#include "google/protobuf/arena.h"
#include "proto/wire/call_codec.h"
#include "proto/wire/check.h"
#include "proto/wire/signatures.h"
#include "rlk/v1/tensor.pb.h"

namespace rlk::wire {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr size_t kReplyBlockBytes = 4096;

rlk::v1::InputCapture ToProto(InputCapture capture) {
  switch (capture) {
    case InputCapture::kSnapshot:
      return rlk::v1::INPUT_CAPTURE_SNAPSHOT;
    case InputCapture::kLive:
      return rlk::v1::INPUT_CAPTURE_LIVE;
    case InputCapture::kUnspecified:
      break;
  }
  return rlk::v1::INPUT_CAPTURE_UNSPECIFIED;
}

rlk::v1::ClaimLevel ToProto(ClaimLevel claim) {
  switch (claim) {
    case ClaimLevel::kL0Repeatable:
      return rlk::v1::CLAIM_LEVEL_L0_REPEATABLE;
    case ClaimLevel::kL1BatchInvariant:
      return rlk::v1::CLAIM_LEVEL_L1_BATCH_INVARIANT;
    case ClaimLevel::kL2Provider:
      return rlk::v1::CLAIM_LEVEL_L2_PROVIDER;
    case ClaimLevel::kL3Portable:
      return rlk::v1::CLAIM_LEVEL_L3_PORTABLE;
    case ClaimLevel::kNone:
      break;
  }
  return rlk::v1::CLAIM_LEVEL_UNSPECIFIED;
}

void FillAttribute(const AttributeSpec& spec, const AttributeValue& value,
                   rlk::v1::AttributeValue* out) {
  switch (value.kind) {
    case AttributeKind::kF32:
    case AttributeKind::kF64:
      out->set_number(value.number);
      break;
    case AttributeKind::kI64:
      out->set_integer(value.integer);
      break;
    case AttributeKind::kBool:
      out->set_boolean(value.integer != 0);
      break;
    case AttributeKind::kDType:
      out->set_dtype(static_cast<rlk::v1::DataType>(value.integer));
      break;
    case AttributeKind::kEnum:
      for (const auto& [number, name] : spec.enumerators) {
        if (number == value.integer) out->set_enumerator(name);
      }
      break;
  }
}

void FillDigest(const NamedDigest& digest, rlk::v1::TensorDigest* out) {
  out->set_name(digest.name);
  if (digest.tensor.has_value()) out->set_digest(digest.tensor->Text());
  std::string& rows = *out->mutable_rows();
  rows.reserve(digest.rows.size() * sizeof(Digest::bytes));
  for (const Digest& row : digest.rows) {
    rows.append(reinterpret_cast<const char*>(row.bytes.data()), row.bytes.size());
  }
}

void FillVerification(const VerificationReport& report, const ReportContext& context,
                      rlk::v1::VerificationResult* out) {
  out->set_verification(report.kind == Verification::kRepeat ? rlk::v1::VERIFICATION_REPEAT
                                                             : rlk::v1::VERIFICATION_REFERENCE);
  out->set_passed(report.passed);
  for (const OutputCheck& check : report.outputs) {
    rlk::v1::OutputVerification& output = *out->add_outputs();
    output.set_name(check.name);
    output.set_passed(check.passed);
    output.set_compared_elements(check.compared);
    output.set_mismatched_elements(check.mismatched);
    output.set_max_abs_error(check.max_abs_error);
    output.set_max_rel_error(check.max_rel_error);
    output.set_atol(check.atol);
    output.set_rtol(check.rtol);
  }
  if (report.kind != Verification::kReference) return;
  out->set_tolerance_contract_version(std::string(context.tolerance_contract_version));
  out->set_tolerance_contract_sha256(std::string(context.tolerance_contract_sha256));
}

void FillSelection(const CallReport& report, rlk::v1::CallReport* out) {
  out->set_contract(report.contract);
  out->set_backend(std::string(BackendName(report.backend)));
  out->set_kernel(report.kernel);
  rlk::v1::DeviceRef& device = *out->mutable_device();
  device.set_kind(report.device.kind == DeviceKind::kCuda ? "cuda" : "cpu");
  device.set_ordinal(report.device.ordinal);
  device.set_name(report.device.name);
  device.set_uuid(report.device.uuid);
  out->set_claim(ToProto(report.claim));
  for (const Rejection& rejection : report.rejected) {
    rlk::v1::RejectedVariant& variant = *out->add_rejected();
    variant.set_backend(std::string(BackendName(rejection.backend)));
    variant.set_kernel(rejection.kernel);
    variant.set_reason(rejection.reason);
  }
  if (report.fallback.has_value()) {
    out->mutable_fallback()->set_from_backend(std::string(BackendName(report.fallback->from)));
    out->mutable_fallback()->set_reason(report.fallback->reason);
  }
}

void FillReport(const CallResult& result, const ReportContext& context, rlk::v1::CallReport* out) {
  const CallReport& report = result.report;
  FillSelection(report, out);
  const auto& specs = result.method->signature.attributes;
  for (size_t i = 0; i < report.attributes.size() && i < specs.size(); ++i) {
    FillAttribute(specs[i], report.attributes[i], &(*out->mutable_attributes())[specs[i].name]);
  }
  for (const NamedDigest& digest : report.input_digests) {
    FillDigest(digest, out->add_input_digests());
  }
  for (const NamedDigest& digest : report.output_digests) {
    FillDigest(digest, out->add_output_digests());
  }
  if (report.verification.kind != Verification::kNone) {
    FillVerification(report.verification, context, out->mutable_verification());
  }
  rlk::v1::PhaseDurations& phases = *out->mutable_phases();
  phases.set_receive_ns(report.phases.receive);
  phases.set_queue_ns(report.phases.queue);
  phases.set_stage_in_ns(report.phases.stage_in);
  phases.set_kernel_ns(report.phases.kernel);
  phases.set_stage_out_ns(report.phases.stage_out);
  out->set_input_capture(ToProto(report.input_capture));
  out->set_provenance_id(std::string(context.provenance_id));
  for (const std::string& transport : report.transports) out->add_transports(transport);
}

}  // namespace

OutputBytes EncodeResult(const CallResult& result, const Descriptor* descriptor,
                         const ReportContext& context) {
  const Message* prototype =
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(descriptor);
  Check(prototype != nullptr, "is not generated code", descriptor->full_name());
  // A report is some twenty small objects; on an arena that starts on the stack most replies take
  // no memory for them one by one.
  alignas(8) char block[kReplyBlockBytes];
  google::protobuf::ArenaOptions arena_options;
  arena_options.initial_block = block;
  arena_options.initial_block_size = sizeof(block);
  google::protobuf::Arena arena(arena_options);
  Message* const message = prototype->New(&arena);
  const Reflection& reflection = *message->GetReflection();
  std::vector<Payload> payloads;
  payloads.reserve(result.outputs.size());
  for (const OutputTensor& output : result.outputs) {
    const TensorSpec& spec = result.method->signature.outputs[static_cast<size_t>(output.spec)];
    const FieldDescriptor* field = descriptor->FindFieldByNumber(spec.field_number);
    Check(field != nullptr, "is bound to another response type", result.method->signature.method);
    const int index = field->is_repeated() ? reflection.FieldSize(*message, field) : 0;
    auto& tensor = static_cast<rlk::v1::Tensor&>(field->is_repeated()
                                                     ? *reflection.AddMessage(message, field)
                                                     : *reflection.MutableMessage(message, field));
    tensor.set_dtype(static_cast<rlk::v1::DataType>(output.dtype));
    tensor.mutable_shape()->Add(output.shape.begin(), output.shape.end());
    tensor.mutable_data();
    payloads.push_back({spec.field_number, index, output.data});
  }
  const FieldDescriptor* report = descriptor->FindFieldByNumber(kReportFieldNumber);
  Check(report != nullptr, "has no report", descriptor->full_name());
  FillReport(result, context,
             static_cast<rlk::v1::CallReport*>(reflection.MutableMessage(message, report)));
  return Join(*message, std::move(payloads));
}

OutputBytes EncodeResult(const CallResult& result, const Descriptor* descriptor,
                         std::string_view provenance_id) {
  return EncodeResult(result, descriptor, ReportContext{provenance_id, {}, {}});
}

rlk::v1::CallReport ReportToProto(const CallResult& result, const ReportContext& context) {
  rlk::v1::CallReport report;
  FillReport(result, context, &report);
  return report;
}

rlk::v1::CallReport ReportToProto(const CallResult& result, std::string_view provenance_id) {
  return ReportToProto(result, ReportContext{provenance_id, {}, {}});
}

}  // namespace rlk::wire
