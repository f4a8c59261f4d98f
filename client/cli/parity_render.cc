#include "client/cli/parity_render.h"

#include <string>

#include "client/cli/render.h"

namespace rlk::cli {
namespace {

std::string TriageText(const rlk::v1::Comparison& comparison) {
  return EnumText(rlk::v1::TriageClass_descriptor(), comparison.triage().triage_class());
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
