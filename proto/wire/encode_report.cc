#include "proto/wire/encode_report.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "google/protobuf/message_lite.h"
#include "proto/wire/check.h"
#include "proto/wire/field_writer.h"

namespace rlk::wire {
namespace {

using rlk::v1::AttributeValue;
using Report = rlk::v1::CallReport;

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

// For the parts that only some calls have: as a message object.
void AppendMessage(int number, const google::protobuf::MessageLite& message, std::string& out) {
  FieldWriter(out).Bytes(number, message.SerializeAsString());
}

void AppendAttribute(const AttributeSpec& spec, const rlk::AttributeValue& value,
                     FieldWriter& writer) {
  switch (value.kind) {
    case AttributeKind::kF32:
    case AttributeKind::kF64:
      writer.Double(AttributeValue::kNumberFieldNumber, value.number);
      break;
    case AttributeKind::kI64:
      writer.Varint(AttributeValue::kIntegerFieldNumber, value.integer);
      break;
    case AttributeKind::kBool:
      writer.Varint(AttributeValue::kBooleanFieldNumber, value.integer != 0 ? 1 : 0);
      break;
    case AttributeKind::kDType:
      writer.Varint(AttributeValue::kDtypeFieldNumber, value.integer);
      break;
    case AttributeKind::kEnum:
      for (const auto& [number, name] : spec.enumerators) {
        if (number != value.integer) continue;
        writer.Bytes(AttributeValue::kEnumeratorFieldNumber, name);
        break;
      }
      break;
  }
}

// A map: entries in the order of their keys, keys and values always written.
void AppendAttributes(const CallResult& result, FieldWriter& writer) {
  constexpr int kKey = 1, kValue = 2;
  const std::vector<AttributeSpec>& specs = result.method->signature.attributes;
  const std::vector<rlk::AttributeValue>& values = result.report.attributes;
  absl::InlinedVector<size_t, 8> order;
  for (size_t i = 0; i < std::min(values.size(), specs.size()); ++i) order.push_back(i);
  std::sort(order.begin(), order.end(),
            [&specs](size_t a, size_t b) { return specs[a].name < specs[b].name; });
  for (const size_t i : order) {
    const size_t entry = writer.Begin(Report::kAttributesFieldNumber);
    writer.Bytes(kKey, specs[i].name);
    const size_t value = writer.Begin(kValue);
    AppendAttribute(specs[i], values[i], writer);
    writer.End(value);
    writer.End(entry);
  }
}

void AppendSelection(const CallReport& report, FieldWriter& writer) {
  writer.Text(Report::kContractFieldNumber, report.contract);
  writer.Text(Report::kBackendFieldNumber, BackendName(report.backend));
  writer.Text(Report::kKernelFieldNumber, report.kernel);
  const size_t device = writer.Begin(Report::kDeviceFieldNumber);
  using Ref = rlk::v1::DeviceRef;
  writer.Text(Ref::kKindFieldNumber, report.device.kind == DeviceKind::kCuda ? "cuda" : "cpu");
  writer.Integer(Ref::kOrdinalFieldNumber, report.device.ordinal);
  writer.Text(Ref::kNameFieldNumber, report.device.name);
  writer.Text(Ref::kUuidFieldNumber, report.device.uuid);
  writer.End(device);
  writer.Integer(Report::kClaimFieldNumber, ToProto(report.claim));
  for (const Rejection& rejection : report.rejected) {
    using Rejected = rlk::v1::RejectedVariant;
    const size_t begin = writer.Begin(Report::kRejectedFieldNumber);
    writer.Text(Rejected::kBackendFieldNumber, BackendName(rejection.backend));
    writer.Text(Rejected::kKernelFieldNumber, rejection.kernel);
    writer.Text(Rejected::kReasonFieldNumber, rejection.reason);
    writer.End(begin);
  }
  if (!report.fallback.has_value()) return;
  using Fallback = rlk::v1::Fallback;
  const size_t fallback = writer.Begin(Report::kFallbackFieldNumber);
  writer.Text(Fallback::kFromBackendFieldNumber, BackendName(report.fallback->from));
  writer.Text(Fallback::kReasonFieldNumber, report.fallback->reason);
  writer.End(fallback);
}

void AppendPhases(const PhaseNanos& phases, FieldWriter& writer) {
  using Phases = rlk::v1::PhaseDurations;
  const size_t begin = writer.Begin(Report::kPhasesFieldNumber);
  writer.Integer(Phases::kReceiveNsFieldNumber, phases.receive);
  writer.Integer(Phases::kQueueNsFieldNumber, phases.queue);
  writer.Integer(Phases::kStageInNsFieldNumber, phases.stage_in);
  writer.Integer(Phases::kKernelNsFieldNumber, phases.kernel);
  writer.Integer(Phases::kStageOutNsFieldNumber, phases.stage_out);
  writer.End(begin);
}

}  // namespace

void AppendReport(const CallResult& result, const ReportContext& context, std::string& out) {
  const CallReport& report = result.report;
  FieldWriter writer(out);
  AppendSelection(report, writer);
  AppendAttributes(result, writer);
  for (const NamedDigest& digest : report.input_digests) {
    rlk::v1::TensorDigest message;
    FillDigest(digest, &message);
    AppendMessage(Report::kInputDigestsFieldNumber, message, out);
  }
  for (const NamedDigest& digest : report.output_digests) {
    rlk::v1::TensorDigest message;
    FillDigest(digest, &message);
    AppendMessage(Report::kOutputDigestsFieldNumber, message, out);
  }
  if (report.verification.kind != Verification::kNone) {
    rlk::v1::VerificationResult message;
    FillVerification(report.verification, context, &message);
    AppendMessage(Report::kVerificationFieldNumber, message, out);
  }
  AppendPhases(report.phases, writer);
  writer.Integer(Report::kInputCaptureFieldNumber, ToProto(report.input_capture));
  writer.Text(Report::kProvenanceIdFieldNumber, context.provenance_id);
  for (const std::string& transport : report.transports) {
    writer.Bytes(Report::kTransportsFieldNumber, transport);
  }
  for (const std::string& name : report.moved_to_resident) {
    writer.Bytes(Report::kMovedToResidentFieldNumber, name);
  }
  for (const std::string& name : report.synthetic_inputs) {
    writer.Bytes(Report::kSyntheticInputsFieldNumber, name);
  }
}

rlk::v1::CallReport ReportToProto(const CallResult& result, const ReportContext& context) {
  std::string bytes;
  AppendReport(result, context, bytes);
  rlk::v1::CallReport report;
  Check(report.ParseFromString(bytes), "cannot be read back", "the report");
  return report;
}

rlk::v1::CallReport ReportToProto(const CallResult& result, std::string_view provenance_id) {
  return ReportToProto(result, ReportContext{provenance_id, {}, {}});
}

}  // namespace rlk::wire
