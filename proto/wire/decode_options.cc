#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "proto/wire/call_parts.h"

namespace rlk::wire {
namespace {

absl::Status CheckOutputName(std::string_view field, const std::string& name,
                             const MethodSignature& signature, const Limits& limits) {
  RLK_RETURN_IF_ERROR(CheckText(field, name, limits));
  std::string allowed;
  for (const TensorSpec& output : signature.outputs) {
    if (output.name == name) return absl::OkStatus();
    absl::StrAppend(&allowed, allowed.empty() ? "" : ", ", output.name);
  }
  return InvalidArgument(Reason::kUnknownOutput, field, name.empty() ? "\"\"" : name, allowed,
                         absl::StrCat("the method has no output \"", name, "\""));
}

absl::Status DecodePlacement(std::string_view field, const rlk::v1::Placement& placement,
                             const Limits& limits, Placement* out) {
  switch (placement.kind_case()) {
    case rlk::v1::Placement::kInline:
      out->kind = PlacementKind::kInline;
      return absl::OkStatus();
    case rlk::v1::Placement::kResident:
      out->kind = PlacementKind::kResident;
      if (placement.resident().has_into()) {
        const rlk::v1::TensorHandle& into = placement.resident().into();
        const std::string path(field);
        RLK_RETURN_IF_ERROR(CheckText(path + ".resident.into.id", into.id(), limits));
        RLK_RETURN_IF_ERROR(CheckText(path + ".resident.into.server_id", into.server_id(), limits));
        out->into = DecodeHandle(into);
      }
      return absl::OkStatus();
    case rlk::v1::Placement::kArena: {
      out->kind = PlacementKind::kArena;
      RLK_RETURN_IF_ERROR(CheckText(field, placement.arena().arena(), limits));
      out->arena = DecodeArena(placement.arena());
      return absl::OkStatus();
    }
    case rlk::v1::Placement::KIND_NOT_SET:
      break;
  }
  return InvalidArgument(Reason::kUnknownOption, field, "", "inline, resident, arena",
                         "the placement says nothing");
}

absl::Status DecodeOutputs(const rlk::v1::CallOptions& options, const MethodSignature& signature,
                           const Limits& limits, CallOptions* out) {
  // A message's map has no order of its own: of several errors it is always the same one.
  std::vector<const std::string*> names;
  for (const auto& [name, placement] : options.outputs()) names.push_back(&name);
  std::sort(names.begin(), names.end(),
            [](const std::string* a, const std::string* b) { return *a < *b; });
  for (const std::string* name : names) {
    RLK_RETURN_IF_ERROR(CheckOutputName("options.outputs", *name, signature, limits));
    RLK_RETURN_IF_ERROR(DecodePlacement(absl::StrCat("options.outputs[", *name, "]"),
                                        options.outputs().at(*name), limits, &out->outputs[*name]));
  }
  for (const std::string& name : options.wanted_outputs()) {
    RLK_RETURN_IF_ERROR(CheckOutputName("options.wanted_outputs", name, signature, limits));
    auto& wanted = out->wanted_outputs;
    if (std::find(wanted.begin(), wanted.end(), name) == wanted.end()) wanted.push_back(name);
  }
  return absl::OkStatus();
}

absl::Status DecodeDigests(const rlk::v1::CallOptions& options, CallOptions* out) {
  for (const int scope : options.digests()) {
    switch (scope) {
      case rlk::v1::DIGEST_SCOPE_TENSOR:
        out->digest_tensors = true;
        break;
      case rlk::v1::DIGEST_SCOPE_ROWS:
        out->digest_rows = true;
        break;
      default:
        return InvalidArgument(
            Reason::kUnknownOption, "options.digests", rlk::v1::DigestScope_Name(scope),
            "DIGEST_SCOPE_TENSOR, DIGEST_SCOPE_ROWS", "the digest scope says nothing");
    }
  }
  return absl::OkStatus();
}

}  // namespace

ClaimLevel ToClaim(rlk::v1::ClaimLevel claim) {
  switch (claim) {
    case rlk::v1::CLAIM_LEVEL_L0_REPEATABLE:
      return ClaimLevel::kL0Repeatable;
    case rlk::v1::CLAIM_LEVEL_L2_PROVIDER:
      return ClaimLevel::kL2Provider;
    case rlk::v1::CLAIM_LEVEL_L3_PORTABLE:
      return ClaimLevel::kL3Portable;
    default:
      return ClaimLevel::kL1BatchInvariant;
  }
}

InputCapture ToCapture(rlk::v1::InputCapture capture) {
  switch (capture) {
    case rlk::v1::INPUT_CAPTURE_SNAPSHOT:
      return InputCapture::kSnapshot;
    case rlk::v1::INPUT_CAPTURE_LIVE:
      return InputCapture::kLive;
    default:
      return InputCapture::kUnspecified;
  }
}

Verification ToVerification(rlk::v1::Verification verification) {
  switch (verification) {
    case rlk::v1::VERIFICATION_REPEAT:
      return Verification::kRepeat;
    case rlk::v1::VERIFICATION_REFERENCE:
      return Verification::kReference;
    default:
      return Verification::kNone;
  }
}

absl::Status CheckText(std::string_view field, std::string_view text, const Limits& limits) {
  const auto size = static_cast<int64_t>(text.size());
  if (size <= limits.attribute_text_bytes_max) return absl::OkStatus();
  return InvalidArgument(Reason::kLimitExceeded, field, absl::StrCat(size, " bytes"),
                         absl::StrCat("at most ", limits.attribute_text_bytes_max,
                                      " bytes (attribute_text_bytes_max)"),
                         "the text is too long");
}

absl::Status DecodeOptions(const rlk::v1::CallOptions& options, const MethodSignature& signature,
                           const Limits& limits, CallOptions* out) {
  RLK_RETURN_IF_ERROR(CheckText("options.contract", options.contract(), limits));
  RLK_RETURN_IF_ERROR(CheckText("options.backend", options.backend(), limits));
  RLK_RETURN_IF_ERROR(CheckText("options.device_uuid", options.device_uuid(), limits));
  out->contract = options.contract();
  out->backend = options.backend();
  out->device_uuid = options.device_uuid();
  out->allow_fallback = options.mode() == rlk::v1::MODE_AUTO;
  out->minimum_claim = ToClaim(options.minimum_claim());
  out->input_capture = ToCapture(options.input_capture());
  out->verification = ToVerification(options.verification());
  RLK_RETURN_IF_ERROR(DecodeOutputs(options, signature, limits, out));
  return DecodeDigests(options, out);
}

}  // namespace rlk::wire
