#include "server/rpc/parity_check_messages.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/message.h"
#include "google/protobuf/util/message_differencer.h"
#include "kernels/core/status.h"
#include "proto/wire/call_codec.h"
#include "server/rpc/parity_messages.h"

namespace rlk::server {
namespace {

constexpr uint64_t kSeedDefault = 123;

void FillReports(const std::vector<RunOf>& runs, const ReportFacts& facts,
                 rlk::v1::SideReport& side) {
  for (const RunOf& run : runs) {
    rlk::v1::MethodReport& report = *side.add_methods();
    report.set_method(run.call.method->decl.method);
    if (!run.run.report) {
      (void)report.mutable_report()->ParseFromString(run.run.remote_report);
      continue;
    }
    CallResult result;
    result.method = run.call.method;
    result.report = *run.run.report;
    *report.mutable_report() =
        wire::ReportToProto(result, {.provenance_id = facts.server->provenance.id,
                                     .tolerance_contract_version = facts.tolerance->version(),
                                     .tolerance_contract_sha256 = facts.tolerance->sha256()});
  }
}

// Names of the fields that differ. The GPUs are none of them, but the id covers them.
void FillDifferentVersions(const rlk::v1::CheckParityResponse& sides,
                           google::protobuf::RepeatedPtrField<std::string>& out) {
  if (!sides.left().has_provenance() || !sides.right().has_provenance()) return;
  const rlk::v1::Provenance& left = sides.left().provenance();
  const rlk::v1::Provenance& right = sides.right().provenance();
  if (left.id() == right.id()) return;
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Descriptor& descriptor = *rlk::v1::Provenance::descriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor* const field = descriptor.field(i);
    if (field->number() == rlk::v1::Provenance::kIdFieldNumber) continue;
    google::protobuf::util::MessageDifferencer differencer;
    if (!differencer.CompareWithFields(left, right, {field}, {field})) *out.Add() = field->name();
  }
  if (out.empty()) *out.Add() = "devices";
}

}  // namespace

GradientOptions FromProto(const rlk::v1::GradientOptions& options) {
  GradientOptions out;
  out.mode = options.mode() == rlk::v1::GRADIENT_MODE_ONES ? GradientOptions::Mode::kOnes
                                                           : GradientOptions::Mode::kRandom;
  out.seed = options.has_seed() ? options.seed() : kSeedDefault;
  return out;
}

absl::StatusOr<InvarianceOptions> FromProto(const rlk::v1::CheckInvarianceRequest& request) {
  InvarianceOptions options;
  options.seed = request.has_seed() ? request.seed() : kSeedDefault;
  options.repeats = request.repeats();
  options.concurrency = request.concurrency();
  for (const int number : request.axes()) {
    const auto axis = static_cast<InvarianceAxis>(number - 1);
    const bool twice =
        std::find(options.axes.begin(), options.axes.end(), axis) != options.axes.end();
    if (number < 1 || number > kInvarianceAxisCount || twice) {
      return InvalidArgument(Reason::kUnknownOption, "axes", absl::StrCat(number), "each axis once",
                             "this is no list of axes");
    }
    options.axes.push_back(axis);
  }
  return options;
}

void FillParity(const ParityResult& result, const ReportFacts& facts,
                rlk::v1::CheckParityResponse& response) {
  response.set_passed(result.passed);
  for (const OutputVerdict& verdict : result.outputs) {
    rlk::v1::OutputVerdict& out = *response.add_outputs();
    out.set_method(verdict.method->decl.method);
    out.set_output(verdict.output);
    out.set_passed(verdict.passed());
    FillComparison(verdict.comparison, *out.mutable_comparison());
    out.set_unwritten_left(verdict.unwritten_left);
    out.set_unwritten_right(verdict.unwritten_right);
    out.set_nan_created_left(verdict.nan_created_left);
    out.set_nan_created_right(verdict.nan_created_right);
  }
  if (const OutputVerdict* first = result.first_difference(); first != nullptr) {
    response.set_first_difference(absl::StrCat(first->method->decl.method, " ", first->output));
  }
  for (const NotCompared& skipped : result.not_compared) {
    rlk::v1::NotCompared& out = *response.add_not_compared();
    out.set_method(skipped.method->decl.method);
    out.set_output(skipped.output);
    out.set_reason(skipped.reason);
  }
  FillReports(result.left, facts, *response.mutable_left());
  FillReports(result.right, facts, *response.mutable_right());
  FillDifferentVersions(response, *response.mutable_different_versions());
  response.set_compared_elements(result.elements);
}

void FillInvariance(const InvarianceResult& result, const ReportFacts& facts,
                    rlk::v1::CheckInvarianceResponse& response) {
  response.set_passed(result.passed);
  for (const AxisResult& axis : result.axes) {
    rlk::v1::AxisVerdict& out = *response.add_axes();
    out.set_method(axis.method->decl.method);
    out.set_axis(static_cast<rlk::v1::InvarianceAxis>(static_cast<int>(axis.axis) + 1));
    out.set_applicable(axis.applicable);
    out.set_passed(axis.passed());
    out.set_note(axis.note);
    out.set_layouts(axis.layouts);
    out.set_compared_elements(axis.elements);
    if (!axis.difference) continue;
    rlk::v1::LayoutDifference& difference = *out.mutable_difference();
    difference.set_layout(axis.difference->layout);
    difference.set_output(axis.difference->output);
    difference.set_row(axis.difference->row);
    FillComparison(axis.difference->comparison, *difference.mutable_comparison());
  }
  FillReports(result.runs, facts, *response.mutable_side());
}

}  // namespace rlk::server
