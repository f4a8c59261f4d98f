#include <chrono>
#include <map>
#include <set>

#include "client/cli/call_arguments.h"
#include "client/cli/command.h"
#include "client/cli/latency.h"
#include "client/cli/npy.h"
#include "client/cli/render.h"
#include "client/cli/safetensors.h"
#include "client/cli/value.h"
#include "kernels/core/status.h"
#include "kernels/digest/digest.h"

namespace rlk::cli {
namespace {

constexpr int64_t kFirstValues = 6;

struct Plan : CallArguments {
  int64_t repeat = 1;
  std::string out;
};

struct Result {
  client::CallResult last;
  LatencySamples latency;
  // By output: the digests seen, one when all calls gave the same bits.
  std::map<std::string, std::set<std::string>> digests;
  std::vector<std::string> failures;
};

template <typename Value>
absl::Status PickOption(const Args& args, const char* name,
                        const std::vector<std::pair<std::string, Value>>& choices, Value& value) {
  if (!args.Has(name)) return absl::OkStatus();
  std::vector<std::string> allowed;
  for (const auto& [text, choice] : choices) {
    allowed.push_back(text);
    if (args.Get(name) == text) {
      value = choice;
      return absl::OkStatus();
    }
  }
  return InvalidArgument(Reason::kUnknownOption, name, args.Get(name), client::JoinNames(allowed),
                         "the value is not allowed");
}

absl::Status FillOptions(const Args& args, rlk::v1::CallOptions& options) {
  options.set_contract(args.Get("--contract"));
  options.set_backend(args.Get("--backend"));
  rlk::v1::Mode mode = rlk::v1::MODE_UNSPECIFIED;
  RLK_RETURN_IF_ERROR(PickOption<rlk::v1::Mode>(
      args, "--mode", {{"strict", rlk::v1::MODE_STRICT}, {"auto", rlk::v1::MODE_AUTO}}, mode));
  options.set_mode(mode);
  rlk::v1::Verification verification = rlk::v1::VERIFICATION_UNSPECIFIED;
  RLK_RETURN_IF_ERROR(PickOption<rlk::v1::Verification>(
      args, "--verify",
      {{"repeat", rlk::v1::VERIFICATION_REPEAT}, {"reference", rlk::v1::VERIFICATION_REFERENCE}},
      verification));
  options.set_verification(verification);
  options.add_digests(rlk::v1::DIGEST_SCOPE_TENSOR);
  for (const std::string& name : args.GetAll("--want")) options.add_wanted_outputs(name);
  for (const std::string& name : args.GetAll("--keep")) {
    (*options.mutable_outputs())[name].mutable_resident();
  }
  return absl::OkStatus();
}

absl::StatusOr<Plan> MakePlan(const Args& args) {
  Plan plan;
  RLK_ASSIGN_OR_RETURN(static_cast<CallArguments&>(plan), ParseCallArguments(args.positional()));
  RLK_RETURN_IF_ERROR(FillOptions(args, plan.request.options));
  RLK_ASSIGN_OR_RETURN(plan.repeat, args.GetInteger("--repeat", 1, 1, 1000000));
  plan.out = args.Get("--out");
  const bool known = plan.out.ends_with(".safetensors") || plan.out.ends_with(".npy");
  if (args.Has("--out") && !known) {
    return InvalidArgument(Reason::kUnknownOption, "--out", plan.out, "FILE.safetensors, FILE.npy",
                           "the kind of file is not known");
  }
  return plan;
}

// The server's digest of a tensor against the one of the bytes that are here.
template <typename Digests>
void CheckDigest(const char* kind, const std::string& name, const std::string& local,
                 const Digests& digests, bool required, std::vector<std::string>& failures) {
  for (const rlk::v1::TensorDigest& digest : digests) {
    if (digest.name() != name) continue;
    if (digest.digest() != local) {
      failures.push_back(std::string(kind) + " " + name + ": the server's digest is " +
                         digest.digest() + ", the bytes here have " + local);
    }
    return;
  }
  if (required) {
    failures.push_back(std::string(kind) + " " + name + ": the server gave no digest");
  }
}

absl::StatusOr<Result> Run(const client::Client& client, const Plan& plan) {
  Result result;
  for (int64_t i = 0; i < plan.repeat; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    auto call = client.Call(plan.request);
    result.latency.Add(std::chrono::steady_clock::now() - begin);
    if (!call.ok()) return call.status();
    for (const auto& [name, tensor] : call->outputs) {
      const std::string digest = ComputeDigest(tensor.view()).Text();
      result.digests[name].insert(digest);
      CheckDigest("output", name, digest, call->report->output_digests(), true, result.failures);
    }
    for (const auto& [name, tensor] : call->residents) {
      for (const auto& digest : call->report->output_digests()) {
        if (digest.name() == name) result.digests[name].insert(digest.digest());
      }
    }
    // Each call keeps its own; the last one's are told.
    if (i + 1 < plan.repeat) {
      for (const auto& [name, tensor] : call->residents) {
        RLK_RETURN_IF_ERROR(client.Release({tensor}));
      }
    }
    if (call->report->has_verification() && !call->report->verification().passed()) {
      result.failures.push_back("the server's verification of the call failed");
    }
    result.last = std::move(*call);
    if (!result.failures.empty()) break;
  }
  // Absent where the server computed on memory that can still change.
  for (const NamedTensor& input : plan.inputs) {
    CheckDigest("input", input.name, ComputeDigest(input.tensor.view()).Text(),
                result.last.report->input_digests(), false, result.failures);
  }
  for (const auto& [name, digests] : result.digests) {
    if (digests.size() != 1) {
      result.failures.push_back("output " + name + ": " + std::to_string(digests.size()) +
                                " distinct digests in " + std::to_string(result.latency.count()) +
                                " calls");
    }
  }
  return result;
}

absl::Status WriteOutputs(const Plan& plan, const client::CallResult& result) {
  if (plan.out.ends_with(".npy")) {
    if (result.outputs.size() != 1) {
      return absl::InvalidArgumentError(plan.out + ": a .npy file holds one output; there are " +
                                        std::to_string(result.outputs.size()));
    }
    return WriteNpy(plan.out, result.outputs[0].second);
  }
  std::vector<std::pair<std::string, const client::Tensor*>> tensors;
  for (const auto& [name, tensor] : result.outputs) tensors.emplace_back(name, &tensor);
  return WriteSafetensors(plan.out, tensors);
}

Json TensorJson(const client::Tensor& tensor) {
  return {{"dtype", std::string(DTypeName(tensor.dtype()))},
          {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())},
          {"digest", ComputeDigest(tensor.view()).Text()},
          {"first_values", FirstJson(tensor, kFirstValues)}};
}

std::string ResultJson(const Args& args, const Plan& plan, const Result& result) {
  Json inputs = Json::array(), outputs = Json::object(), distinct = Json::object();
  for (const NamedTensor& input : plan.inputs) {
    Json entry = {{"name", input.name}};
    entry.update(TensorJson(input.tensor));
    inputs.push_back(std::move(entry));
  }
  for (const auto& [name, handle] : plan.handles) {
    inputs.push_back({{"name", name}, {"handle", handle}});
  }
  for (const auto& [name, tensor] : result.last.outputs) outputs[name] = TensorJson(tensor);
  for (const auto& [name, tensor] : result.last.residents) {
    outputs[name] = {{"dtype", std::string(DTypeName(tensor.dtype))},
                     {"shape", std::vector<int64_t>(tensor.shape.begin(), tensor.shape.end())},
                     {"handle", HandleText(tensor.handle)},
                     {"generation", tensor.handle.generation()}};
  }
  for (const auto& [name, digests] : result.digests) distinct[name] = digests.size();
  Json json = {{"method", plan.request.method},
               {"server", ServerAddress(args)},
               {"inputs", std::move(inputs)},
               {"outputs", std::move(outputs)},
               {"report", ReportJson(*result.last.report)},
               {"repeat",
                {{"calls", result.latency.count()},
                 {"distinct_digests", std::move(distinct)},
                 {"latency_us", result.latency.Summary()}}},
               {"failures", result.failures}};
  return Dump(json);
}

std::string ResultText(const Args& args, const Plan& plan, const Result& result) {
  Table table({"tensor", "dtype", "shape", "digest", "first values"});
  const auto add = [&table](const std::string& name, const client::Tensor& tensor) {
    table.Add({name, std::string(DTypeName(tensor.dtype())), ShapeText(tensor.shape()),
               ComputeDigest(tensor.view()).Text(), FirstText(tensor, kFirstValues)});
  };
  for (const NamedTensor& input : plan.inputs) add("in  " + input.name, input.tensor);
  for (const auto& [name, handle] : plan.handles) table.Add({"in  " + name, "", "", handle, ""});
  for (const auto& [name, tensor] : result.last.outputs) add("out " + name, tensor);
  for (const auto& [name, tensor] : result.last.residents) {
    table.Add({"out " + name, std::string(DTypeName(tensor.dtype)), ShapeText(tensor.shape),
               HandleText(tensor.handle), ""});
  }
  std::string text = plan.request.method + " at " + ServerAddress(args) + "\n\n" + table.Text() +
                     "\n" + ReportText(*result.last.report);
  if (plan.repeat > 1) {
    size_t distinct = 0;
    for (const auto& [name, digests] : result.digests) {
      distinct = std::max(distinct, digests.size());
    }
    text += "\n";
    text += std::to_string(result.latency.count()) + " calls, " + std::to_string(distinct) +
            " distinct digest" + (distinct == 1 ? "" : "s") + " an output; latency " +
            result.latency.Text() + "\n";
  }
  if (!plan.out.empty() && result.failures.empty()) text += "\nwrote " + plan.out + "\n";
  return text;
}

}  // namespace

Outcome RunCall(const Args& args) {
  const absl::StatusOr<Plan> plan = MakePlan(args);
  if (!plan.ok()) return UsageError(plan.status());
  const auto client = Connect(args);
  if (!client.ok()) return ConnectError(client.status());
  const absl::StatusOr<Result> result = Run(*client, *plan);
  if (!result.ok()) return CallError(result.status());
  // Outputs that failed a check are not written.
  if (!plan->out.empty() && result->failures.empty()) {
    const absl::Status written = WriteOutputs(*plan, result->last);
    if (!written.ok()) return UsageError(written);
  }
  Outcome outcome;
  outcome.exit_code = result->failures.empty() ? kExitOk : kExitRefused;
  outcome.json = ResultJson(args, *plan, *result);
  outcome.text = ResultText(args, *plan, *result);
  outcome.failures = result->failures;
  return outcome;
}

}  // namespace rlk::cli
