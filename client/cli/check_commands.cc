// rlk parity check, rlk parity invariance.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/call_arguments.h"
#include "client/cli/command.h"
#include "client/cli/comparison_text.h"
#include "client/cli/numbers.h"
#include "client/cli/parity_options.h"
#include "client/cli/parity_render.h"
#include "client/cli/render.h"
#include "client/cli/value.h"
#include "client/cpp/checks.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

// The tensors of a side or of gradients, and what keeps them.
struct Tensors {
  std::vector<NamedTensor> kept;
  client::NamedTensors named;
};

absl::Status AddTensors(const Args& args, const char* option, Tensors& out) {
  for (const std::string& text : args.GetAll(option)) {
    RLK_ASSIGN_OR_RETURN(const auto name_value, SplitNameValue(text));
    if (IsHandle(name_value.second)) {
      client::TensorRef ref;
      RLK_ASSIGN_OR_RETURN(ref.resident, ParseHandle(name_value.second));
      out.named.emplace_back(name_value.first, std::move(ref));
      continue;
    }
    RLK_ASSIGN_OR_RETURN(client::Tensor tensor, LoadTensor(name_value.second));
    out.named.emplace_back(name_value.first, tensor.ref());
    out.kept.push_back({name_value.first, std::move(tensor)});
  }
  return absl::OkStatus();
}

// A side computes, or is given: what says where it computes would be passed over.
absl::Status CheckSideOptions(const Args& args, const std::string& name) {
  if (!args.Has("--" + name + "-tensor")) return absl::OkStatus();
  for (const std::string& option : {"--" + name, "--" + name + "-server"}) {
    if (!args.Has(option)) continue;
    return InvalidArgument(Reason::kUnknownOption, option, args.Get(option),
                           "none beside --" + name + "-tensor",
                           "a side computes, or is provided, not both");
  }
  return absl::OkStatus();
}

// --left BACKEND[:CONTRACT], --left-server ADDR, --left-tensor OUTPUT=VALUE.
absl::Status FillSide(const Args& args, const std::string& name, client::CheckSide& side,
                      Tensors& tensors) {
  RLK_RETURN_IF_ERROR(CheckSideOptions(args, name));
  const std::string place = args.Get("--" + name);
  const size_t colon = place.find(':');
  side.backend = place.substr(0, colon);
  if (colon != std::string::npos) side.contracts.push_back(place.substr(colon + 1));
  side.server = args.Get("--" + name + "-server");
  RLK_RETURN_IF_ERROR(AddTensors(args, ("--" + name + "-tensor").c_str(), tensors));
  side.provided = tensors.named;
  return absl::OkStatus();
}

Outcome Answer(bool passed, std::string what, std::string json, std::string text) {
  Outcome outcome;
  outcome.exit_code = passed ? kExitOk : kExitRefused;
  outcome.json = std::move(json);
  outcome.text = std::move(text);
  if (!passed) outcome.failures.push_back(std::move(what));
  return outcome;
}

struct CheckPlan {
  CallArguments call;
  client::ParityCheck check;
  Tensors left, right, gradients;
};

absl::StatusOr<CheckPlan> MakeCheck(const Args& args, const std::vector<std::string>& words) {
  CheckPlan plan;
  RLK_ASSIGN_OR_RETURN(plan.call, ParseCallArguments(words));
  RLK_RETURN_IF_ERROR(FillSide(args, "left", plan.check.left, plan.left));
  RLK_RETURN_IF_ERROR(FillSide(args, "right", plan.check.right, plan.right));
  RLK_ASSIGN_OR_RETURN(plan.check.gradients, GradientsOf(args));
  RLK_RETURN_IF_ERROR(AddTensors(args, "--grad", plan.gradients));
  if (!plan.gradients.named.empty()) {
    if (!plan.check.gradients) plan.check.gradients.emplace();
    plan.check.gradients->given = plan.gradients.named;
  }
  RLK_ASSIGN_OR_RETURN(plan.check.judgment, JudgmentOf(args));
  plan.check.call = plan.call.request;
  return plan;
}

}  // namespace

Outcome RunParityCheck(const Args& args, const std::vector<std::string>& words) {
  const absl::StatusOr<CheckPlan> plan = MakeCheck(args, words);
  if (!plan.ok()) return UsageError(plan.status());
  const auto client = Connect(args);
  if (!client.ok()) return ConnectError(client.status());
  const auto response = client::CheckParity(*client, plan->check);
  if (!response.ok()) return CallError(response.status());
  return Answer(response->passed(), response->first_difference() + " differs",
                Dump(MessageJson(*response)), ParityText(*response));
}

namespace {

struct InvariancePlan {
  CallArguments call;
  client::InvarianceCheck check;
};

absl::StatusOr<InvariancePlan> MakeInvariance(const Args& args,
                                              const std::vector<std::string>& words) {
  InvariancePlan plan;
  RLK_ASSIGN_OR_RETURN(plan.call, ParseCallArguments(words));
  plan.call.request.options.set_backend(args.Get("--backend"));
  if (args.Has("--contract")) plan.check.contracts.push_back(args.Get("--contract"));
  RLK_ASSIGN_OR_RETURN(plan.check.axes, AxesOf(args));
  RLK_ASSIGN_OR_RETURN(const int64_t seed, args.GetInteger("--seed", 123, 0, INT64_MAX));
  plan.check.seed = static_cast<uint64_t>(seed);
  RLK_ASSIGN_OR_RETURN(plan.check.repeats, args.GetInteger("--repeats", 0, 0, INT64_MAX));
  RLK_ASSIGN_OR_RETURN(plan.check.concurrency, args.GetInteger("--concurrency", 0, 0, INT64_MAX));
  RLK_ASSIGN_OR_RETURN(plan.check.gradients, GradientsOf(args));
  plan.check.call = plan.call.request;
  return plan;
}

}  // namespace

Outcome RunParityInvariance(const Args& args, const std::vector<std::string>& words) {
  const absl::StatusOr<InvariancePlan> plan = MakeInvariance(args, words);
  if (!plan.ok()) return UsageError(plan.status());
  const auto client = Connect(args);
  if (!client.ok()) return ConnectError(client.status());
  const auto response = client::CheckInvariance(*client, plan->check);
  if (!response.ok()) return CallError(response.status());
  const bool differs =
      std::any_of(response->axes().begin(), response->axes().end(),
                  [](const rlk::v1::AxisVerdict& axis) { return !axis.passed(); });
  return Answer(response->passed(),
                differs ? "a row's result depends on more than the row"
                        : "no axis has a meaning for the call: nothing was compared",
                Dump(MessageJson(*response)), InvarianceText(*response));
}

}  // namespace rlk::cli
