#include "server/parity/check_invariance.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "server/parity/axis_run.h"

namespace rlk::server {
namespace {

std::vector<InvarianceAxis> Axes(const InvarianceOptions& options) {
  if (!options.axes.empty()) return options.axes;
  std::vector<InvarianceAxis> all;
  for (int i = 0; i < kInvarianceAxisCount; ++i) all.push_back(static_cast<InvarianceAxis>(i));
  return all;
}

absl::Status CheckOptions(const InvarianceOptions& options) {
  const auto bounded = [](const char* field, int64_t value, int64_t most) {
    if (value >= 0 && value <= most) return absl::OkStatus();
    return InvalidArgument(Reason::kLimitExceeded, field, std::to_string(value),
                           absl::StrCat("an integer in [0, ", most, "]"),
                           "the value is out of range");
  };
  RLK_RETURN_IF_ERROR(bounded("repeats", options.repeats, kRepeatsMax));
  return bounded("concurrency", options.concurrency, kConcurrencyMax);
}

absl::Status CheckRows(const RowModel& model, const InvarianceOptions& options) {
  const std::vector<InvarianceAxis> axes = Axes(options);
  const bool laid_out = std::any_of(axes.begin(), axes.end(), [](InvarianceAxis axis) {
    return axis != InvarianceAxis::kRepeat;
  });
  if (!laid_out || model.rows() <= kLaidOutRowsMax) return absl::OkStatus();
  return InvalidArgument(
      Reason::kLimitExceeded, "invocation", absl::StrCat(model.rows(), " rows"),
      absl::StrCat("at most ", kLaidOutRowsMax, " rows; axis repeat has no bound"),
      "there are too many rows to lay out");
}

}  // namespace

absl::StatusOr<InvarianceResult> CheckInvariance(const Registry& registry, CallRunner& runner,
                                                 const ValueCall& call,
                                                 const InvarianceOptions& options,
                                                 CheckContext& context) {
  RLK_RETURN_IF_ERROR(CheckOptions(options));
  InvarianceResult result;
  RLK_ASSIGN_OR_RETURN(result.runs, RunWithGradients(registry, runner, call, options.gradients,
                                                     options.gradient, FillOfRun(0), context));
  const std::optional<RowAxis> axis = FindRowAxis(registry, call.signature().operator_name);
  for (const RunOf& base : result.runs) {
    std::optional<RowModel> model;
    if (axis) {
      RLK_ASSIGN_OR_RETURN(model, RowModel::Make(base.call, *axis));
      RLK_RETURN_IF_ERROR(CheckRows(*model, options));
    }
    for (const InvarianceAxis each : Axes(options)) {
      RLK_RETURN_IF_ERROR(context.CheckCaller());
      AxisRun run(base, model ? &*model : nullptr, runner, options, context);
      RLK_ASSIGN_OR_RETURN(AxisResult checked, run.Run(each));
      result.passed = result.passed && checked.passed();
      result.axes.push_back(std::move(checked));
    }
  }
  result.passed =
      result.passed && std::any_of(result.axes.begin(), result.axes.end(),
                                   [](const AxisResult& checked) { return checked.applicable; });
  return result;
}

}  // namespace rlk::server
