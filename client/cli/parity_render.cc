#include "client/cli/parity_render.h"

#include <string>
#include <utility>

namespace rlk::cli {
namespace {

std::string TriageText(const rlk::v1::Comparison& comparison) {
  return EnumText(rlk::v1::TriageClass_descriptor(), comparison.triage().triage_class());
}

Json MismatchJson(const rlk::v1::Mismatch& mismatch) {
  Json indices = Json::array();
  for (const auto& coordinate : mismatch.coordinates()) indices.push_back(coordinate.index());
  return {{"flat_index", mismatch.flat_index()},
          {"indices", std::move(indices)},
          {"left_bits", mismatch.left_bits()},
          {"right_bits", mismatch.right_bits()},
          {"left_value", NumberJson(mismatch.left_value())},
          {"right_value", NumberJson(mismatch.right_value())}};
}

Json SideJson(const rlk::v1::SideReport& side) {
  Json methods = Json::array();
  for (const rlk::v1::MethodReport& method : side.methods()) {
    methods.push_back({{"method", method.method()}, {"report", ReportJson(method.report())}});
  }
  return {{"where", side.where()},
          {"server_id", side.server_id()},
          {"provenance_id", side.provenance().id()},
          {"version", side.provenance().version()},
          {"git_commit", side.provenance().has_git_commit() ? Json(side.provenance().git_commit())
                                                            : Json(nullptr)},
          {"methods", std::move(methods)}};
}

std::string SideText(const char* name, const rlk::v1::SideReport& side) {
  std::string text = std::string(name) + "  " + side.where();
  for (const rlk::v1::MethodReport& method : side.methods()) {
    text += "\n    " + method.method() + ": " + method.report().backend() + ", " +
            method.report().contract() + ", " + method.report().kernel() + " on " +
            method.report().device().name();
  }
  return text + "\n";
}

const char* Verdict(bool passed) { return passed ? "passed" : "FAILED"; }

std::string Join(const google::protobuf::RepeatedPtrField<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) joined += (joined.empty() ? "" : ", ") + text;
  return joined;
}

}  // namespace

Json ComparisonFields(const rlk::v1::Comparison& comparison) {
  const rlk::v1::ComparisonCounts& counts = comparison.counts();
  const rlk::v1::ErrorMagnitude& magnitude = comparison.magnitude();
  Json ulp = Json::array();
  for (const rlk::v1::UlpBucket& bucket : comparison.ulp().buckets()) {
    if (bucket.elements() == 0) continue;
    ulp.push_back({{"at_least", bucket.at_least()},
                   {"at_most", bucket.at_most()},
                   {"elements", bucket.elements()}});
  }
  return {
      {"judgment", EnumText(rlk::v1::Judgment_descriptor(), comparison.judgment())},
      {"passed", comparison.passed()},
      {"difference", EnumText(rlk::v1::Difference_descriptor(), comparison.difference())},
      {"left_digest", comparison.left().digest()},
      {"right_digest", comparison.right().digest()},
      {"compared", counts.compared()},
      {"mismatched", counts.mismatched()},
      {"unwritten_left", counts.unwritten_left()},
      {"unwritten_right", counts.unwritten_right()},
      {"first_mismatch",
       comparison.has_first_mismatch() ? MismatchJson(comparison.first_mismatch()) : Json(nullptr)},
      {"ulp_max", comparison.ulp().max()},
      {"ulp", std::move(ulp)},
      {"max_abs_error", NumberJson(magnitude.max_abs())},
      {"max_rel_error", NumberJson(magnitude.max_rel())},
      {"mean_abs_error", NumberJson(magnitude.mean_abs())},
      {"signed_mean_error", NumberJson(magnitude.signed_mean())},
      {"rule",
       {{"bitwise", comparison.rule().bitwise()},
        {"row", comparison.rule().row()},
        {"atol", comparison.rule().atol()},
        {"rtol", comparison.rule().rtol()},
        {"outside", comparison.rule().outside()}}},
      {"triage", {{"class", TriageText(comparison)}, {"hint", comparison.triage().hint()}}}};
}

std::string ComparisonLine(const rlk::v1::Comparison& comparison) {
  const rlk::v1::ComparisonCounts& counts = comparison.counts();
  std::string text = std::to_string(counts.mismatched()) + " of " +
                     std::to_string(counts.compared()) + " elements differ";
  if (comparison.has_first_mismatch()) {
    const rlk::v1::Mismatch& first = comparison.first_mismatch();
    text += ", first at " + std::to_string(first.flat_index()) + ": " + first.left_bits() +
            " against " + first.right_bits() + "; at most " +
            std::to_string(comparison.ulp().max()) + " ULP, error at most " +
            Short(comparison.magnitude().max_abs());
  }
  if (!comparison.rule().bitwise()) {
    text += "; atol " + Short(comparison.rule().atol()) + ", rtol " +
            Short(comparison.rule().rtol()) + ", " + std::to_string(comparison.rule().outside()) +
            " outside";
  }
  if (!comparison.passed()) {
    text += "; " + TriageText(comparison) + ": " + comparison.triage().hint();
  }
  return text;
}

Json ParityJson(const rlk::v1::CheckParityResponse& response) {
  Json outputs = Json::array(), skipped = Json::array(), versions = Json::array();
  for (const rlk::v1::OutputVerdict& output : response.outputs()) {
    outputs.push_back({{"method", output.method()},
                       {"output", output.output()},
                       {"passed", output.passed()},
                       {"comparison", ComparisonFields(output.comparison())},
                       {"unwritten_left", output.unwritten_left()},
                       {"unwritten_right", output.unwritten_right()},
                       {"nan_created_left", output.nan_created_left()},
                       {"nan_created_right", output.nan_created_right()}});
  }
  for (const rlk::v1::NotCompared& each : response.not_compared()) {
    skipped.push_back(
        {{"method", each.method()}, {"output", each.output()}, {"reason", each.reason()}});
  }
  for (const std::string& name : response.different_versions()) versions.push_back(name);
  return {{"passed", response.passed()},
          {"first_difference", response.first_difference()},
          {"outputs", std::move(outputs)},
          {"not_compared", std::move(skipped)},
          {"left", SideJson(response.left())},
          {"right", SideJson(response.right())},
          {"different_versions", std::move(versions)},
          {"compared_elements", response.compared_elements()},
          {"calls", response.calls()},
          {"work_bytes", response.work_bytes()}};
}

std::string ParityText(const rlk::v1::CheckParityResponse& response) {
  Table table({"method", "output", "verdict", ""});
  for (const rlk::v1::OutputVerdict& output : response.outputs()) {
    std::string more = ComparisonLine(output.comparison());
    const auto add = [&more](const char* what, int64_t left, int64_t right) {
      if (left == 0 && right == 0) return;
      more.append("; ").append(what).append(" ").append(std::to_string(left)).append(" left, ");
      more.append(std::to_string(right)).append(" right");
    };
    add("unwritten", output.unwritten_left(), output.unwritten_right());
    add("NaN created", output.nan_created_left(), output.nan_created_right());
    table.Add({output.method(), output.output(), Verdict(output.passed()), more});
  }
  for (const rlk::v1::NotCompared& each : response.not_compared()) {
    table.Add({each.method(), each.output(), "not compared", each.reason()});
  }
  std::string text = SideText("left ", response.left()) + SideText("right", response.right());
  if (response.different_versions_size() > 0) {
    text += "the sides are different versions: " + Join(response.different_versions()) + "\n";
  }
  text.append("\n").append(table.Text()).append("\n");
  text += response.passed() ? "passed" : "FAILED at ";
  text.append(response.first_difference()).append(": ");
  return text + std::to_string(response.compared_elements()) + " elements compared, " +
         std::to_string(response.calls()) + " calls\n";
}

Json InvarianceJson(const rlk::v1::CheckInvarianceResponse& response) {
  Json axes = Json::array();
  for (const rlk::v1::AxisVerdict& axis : response.axes()) {
    Json difference = nullptr;
    if (axis.has_difference()) {
      difference = {{"layout", axis.difference().layout()},
                    {"output", axis.difference().output()},
                    {"row", axis.difference().row()},
                    {"comparison", ComparisonFields(axis.difference().comparison())}};
    }
    axes.push_back({{"method", axis.method()},
                    {"axis", EnumText(rlk::v1::InvarianceAxis_descriptor(), axis.axis())},
                    {"applicable", axis.applicable()},
                    {"passed", axis.passed()},
                    {"note", axis.note()},
                    {"layouts", axis.layouts()},
                    {"compared_elements", axis.compared_elements()},
                    {"difference", std::move(difference)}});
  }
  return {{"passed", response.passed()},
          {"axes", std::move(axes)},
          {"side", SideJson(response.side())},
          {"calls", response.calls()},
          {"work_bytes", response.work_bytes()}};
}

std::string InvarianceText(const rlk::v1::CheckInvarianceResponse& response) {
  Table table({"method", "axis", "verdict", "layouts", "elements", ""});
  for (const rlk::v1::AxisVerdict& axis : response.axes()) {
    std::string more = axis.note();
    if (axis.has_difference()) {
      const rlk::v1::LayoutDifference& difference = axis.difference();
      more = difference.output() +
             (difference.row() >= 0 ? " of row " + std::to_string(difference.row()) : "") +
             " differs with " + difference.layout() + ": " +
             ComparisonLine(difference.comparison());
    }
    table.Add({axis.method(), EnumText(rlk::v1::InvarianceAxis_descriptor(), axis.axis()),
               axis.applicable() ? Verdict(axis.passed()) : "no meaning",
               std::to_string(axis.layouts()), std::to_string(axis.compared_elements()), more});
  }
  return SideText("side", response.side()) + "\n" + table.Text() + "\n" +
         Verdict(response.passed()) + ": " + std::to_string(response.calls()) + " calls\n";
}

}  // namespace rlk::cli
