// rlk check-operator: an operator against its FP64 reference, forward and backward. A view of
// CheckParity with the report fields of RL-Kernel's check_operator.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/command.h"
#include "client/cli/elements.h"
#include "client/cli/operator_cases.h"
#include "client/cli/parity_options.h"
#include "client/cli/parity_render.h"
#include "client/cli/render.h"
#include "client/cpp/checks.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

constexpr char kSuite[] = "rlk.check_operator";

struct CaseResult {
  std::string method;
  std::string op_class, dtype;
  std::vector<rlk::v1::OutputVerdict> outputs;

  bool passed() const {
    for (const rlk::v1::OutputVerdict& output : outputs) {
      if (!output.passed()) return false;
    }
    return true;
  }
};

struct CandidateResult {
  std::string name;   // as it was asked for
  std::string dtype;  // of the inputs that allow it
  rlk::v1::MethodReport report;
  std::vector<CaseResult> cases;
  int64_t outputs = 0, passed_outputs = 0;

  bool passed() const { return outputs == passed_outputs; }
};

std::string OpClassText(OpClass op_class) {
  return EnumText(rlk::v1::OpClass_descriptor(), static_cast<int>(op_class));
}

// The backward's class is the forward's: both are of one operator.
void AddOutputs(const OperatorCase& each, const rlk::v1::CheckParityResponse& response,
                CandidateResult& candidate) {
  std::map<std::string, size_t> by_method;
  for (const rlk::v1::OutputVerdict& output : response.outputs()) {
    const auto [found, added] = by_method.emplace(output.method(), candidate.cases.size());
    if (added) {
      candidate.cases.push_back({.method = output.method(),
                                 .op_class = OpClassText(each.signature.op_class),
                                 .dtype = candidate.dtype,
                                 .outputs = {}});
    }
    candidate.cases[found->second].outputs.push_back(output);
    ++candidate.outputs;
    candidate.passed_outputs += output.passed() ? 1 : 0;
  }
  if (candidate.report.method().empty()) candidate.report = response.left().methods(0);
}

// --device auto, cpu, cuda (the first of the kind), cuda:N, or a UUID; empty for auto.
absl::StatusOr<std::string> DeviceUuid(const client::Client& client, const Args& args) {
  const std::string wanted = args.Get("--device", "auto");
  if (wanted == "auto") return std::string();
  RLK_ASSIGN_OR_RETURN(const rlk::v1::GetInfoResponse info, client.GetInfo());
  std::vector<std::string> known = {"auto"};
  for (const rlk::v1::DeviceInfo& each : info.devices()) {
    const rlk::v1::DeviceRef& device = each.device();
    const std::string place = device.kind() + ":" + std::to_string(device.ordinal());
    const bool first = device.ordinal() == 0 && wanted == device.kind();
    if (first || wanted == place || wanted == device.uuid()) return device.uuid();
    known.push_back(place);
  }
  return InvalidArgument(Reason::kDeviceNotFound, "--device", wanted, client::JoinNames(known),
                         "the server has no such device");
}

struct CandidatePlace {
  std::string backend, device_uuid;
};

absl::StatusOr<CandidateResult> CheckCandidate(const client::Client& client, const Args& args,
                                               const CandidatePlace& place,
                                               const std::vector<OperatorCase>& cases,
                                               const CaseOptions& options) {
  CandidateResult candidate;
  candidate.name = place.backend.empty() ? "auto" : place.backend;
  candidate.dtype = DTypeName(options.dtype);
  RLK_ASSIGN_OR_RETURN(const auto gradients, GradientsOf(args));
  for (const OperatorCase& each : cases) {
    client::ParityCheck check{.call = each.call.request};
    check.left.backend = place.backend;
    check.left.device_uuid = place.device_uuid;
    check.left.contracts = args.GetAll("--contract");
    check.right.backend = "golden";
    check.judgment = rlk::v1::JUDGMENT_ACCURACY;
    check.gradients = gradients;
    auto response = client::CheckParity(client, check);
    if (gradients && cases.size() > 1 && !response.ok()) {
      // Of several forwards, one may be another form that has no gradients of its own.
      const auto detail = GetErrorDetail(response.status());
      if (detail && detail->reason == Reason::kMissingTensor &&
          detail->field.rfind("grad_", 0) == 0) {
        check.gradients.reset();
        response = client::CheckParity(client, check);
      }
    }
    if (!response.ok()) return response.status();
    AddOutputs(each, *response, candidate);
  }
  return candidate;
}

double Rate(int64_t passed, int64_t total) {
  return total == 0 ? 0 : static_cast<double>(passed) / static_cast<double>(total);
}

Json OutputJson(int64_t index, const rlk::v1::OutputVerdict& output) {
  const rlk::v1::Comparison& comparison = output.comparison();
  const rlk::v1::ErrorMagnitude& magnitude = comparison.magnitude();
  // "forward_accuracy/reduction/float32".
  const std::string& row = comparison.rule().row();
  Json shape = Json::array();
  for (const int64_t size : comparison.left().shape()) shape.push_back(size);
  return {{"output_index", index},
          {"output", output.output()},
          {"shape", std::move(shape)},
          {"candidate_dtype", DTypeText(comparison.left().dtype())},
          {"gold_dtype", DTypeText(comparison.right().dtype())},
          {"atol", comparison.rule().atol()},
          {"rtol", comparison.rule().rtol()},
          {"max_abs_error", NumberJson(magnitude.max_abs())},
          {"mean_abs_error", NumberJson(magnitude.mean_abs())},
          {"max_rel_error", NumberJson(magnitude.max_rel())},
          {"passed", output.passed()},
          {"judgment", row.substr(0, row.find('/'))},
          {"tolerance_row", row},
          {"comparison_lhs_role", comparison.left().role()},
          {"comparison_rhs_role", comparison.right().role()},
          {"message", output.passed() ? "" : ComparisonLine(comparison)}};
}

Json ProvenanceJson(const CandidateResult& candidate) {
  const rlk::v1::CallReport& report = candidate.report.report();
  const rlk::v1::Comparison& first = candidate.cases[0].outputs[0].comparison();
  return {{"backend_profile", report.backend() + "_" + LowerCase(candidate.dtype)},
          {"requested_backend", candidate.name},
          {"actual_backend", report.backend()},
          {"device", DeviceJson(report.device())},
          {"contract", report.contract()},
          {"kernel", report.kernel()},
          {"execution_dtype", candidate.dtype},
          {"accumulation_dtype", "F32"},
          {"output_dtype", DTypeText(first.left().dtype())},
          {"reference_dtype", "F64"},
          {"candidate_tf32_enabled", false},
          {"reference_tf32_enabled", false},
          {"provenance_id", report.provenance_id()},
          {"tolerance_contract_version", first.rule().tolerance_contract_version()},
          {"tolerance_contract_sha256", first.rule().tolerance_contract_sha256()}};
}

Json CandidateJson(const CandidateResult& candidate) {
  Json cases = Json::array();
  for (const CaseResult& each : candidate.cases) {
    Json outputs = Json::array();
    for (size_t i = 0; i < each.outputs.size(); ++i) {
      outputs.push_back(OutputJson(static_cast<int64_t>(i), each.outputs[i]));
    }
    cases.push_back({{"case_name", each.method},
                     {"dtype", each.dtype},
                     {"op_class", each.op_class},
                     {"passed", each.passed()},
                     {"outputs", std::move(outputs)}});
  }
  return {{"candidate_name", candidate.name},
          {"backend", candidate.report.report().backend()},
          {"total_outputs", candidate.outputs},
          {"passed_outputs", candidate.passed_outputs},
          {"pass_rate", Rate(candidate.passed_outputs, candidate.outputs)},
          {"passed", candidate.passed()},
          {"cases", std::move(cases)},
          {"backend_provenance", ProvenanceJson(candidate)}};
}

std::string CandidateText(const CandidateResult& candidate) {
  const rlk::v1::CallReport& report = candidate.report.report();
  Table table({"case", "output", "shape", "dtype", "max abs", "max rel", "atol", "rtol", ""});
  for (const CaseResult& each : candidate.cases) {
    for (const rlk::v1::OutputVerdict& output : each.outputs) {
      const rlk::v1::Comparison& comparison = output.comparison();
      Dims shape;
      for (const int64_t size : comparison.left().shape()) shape.push_back(size);
      table.Add({each.method, output.output(), ShapeText(shape),
                 DTypeText(comparison.left().dtype()), Short(comparison.magnitude().max_abs()),
                 Short(comparison.magnitude().max_rel()), Short(comparison.rule().atol()),
                 Short(comparison.rule().rtol()),
                 output.passed() ? "passed" : "FAILED: " + ComparisonLine(comparison)});
    }
  }
  return "candidate " + candidate.name + ": " + report.backend() + ", " + report.contract() +
         "\n\n" + table.Text() + "\n";
}

Outcome Report(const std::vector<CandidateResult>& candidates) {
  int64_t passed = 0;
  Json list = Json::array();
  std::string text;
  for (const CandidateResult& candidate : candidates) {
    passed += candidate.passed() ? 1 : 0;
    list.push_back(CandidateJson(candidate));
    text += CandidateText(candidate);
  }
  const auto total = static_cast<int64_t>(candidates.size());
  Outcome outcome;
  outcome.exit_code = passed == total ? kExitOk : kExitRefused;
  outcome.json = Dump({{"suite_name", kSuite},
                       {"total_candidates", total},
                       {"passed_candidates", passed},
                       {"pass_rate", Rate(passed, total)},
                       {"passed", passed == total},
                       {"candidates", std::move(list)}});
  outcome.text =
      text + std::to_string(passed) + " of " + std::to_string(total) + " candidates passed\n";
  if (passed != total) outcome.failures.push_back("an output is outside of its tolerance");
  return outcome;
}

// The operator and the words behind it: the first word, or --op.
struct Subject {
  std::string name;
  std::vector<std::string> words;
};

absl::StatusOr<Subject> SubjectOf(const Args& args) {
  const std::vector<std::string>& words = args.positional();
  // A word is the operator's name, or NAME=VALUE.
  const bool named = !words.empty() && words[0].find('=') == std::string::npos;
  if (args.Has("--op") && named) {
    return InvalidArgument(Reason::kUnknownOption, "--op", args.Get("--op"),
                           "OPERATOR or --op OPERATOR", "the operator is named twice");
  }
  if (args.Has("--op")) return Subject{args.Get("--op"), words};
  if (!named) return absl::InvalidArgumentError("rlk check-operator needs an OPERATOR");
  return Subject{words[0], {words.begin() + 1, words.end()}};
}

}  // namespace

Outcome RunCheckOperator(const Args& args) {
  const absl::StatusOr<Subject> subject = SubjectOf(args);
  if (!subject.ok()) return UsageError(subject.status());
  const absl::StatusOr<CaseOptions> options = ReadCaseOptions(args);
  if (!options.ok()) return UsageError(options.status());
  const auto cases = MakeCases(subject->name, subject->words, *options);
  if (!cases.ok()) return UsageError(cases.status());
  if (const auto gradients = GradientsOf(args); !gradients.ok()) {
    return UsageError(gradients.status());
  }
  const auto client = Connect(args);
  if (!client.ok()) return ConnectError(client.status());
  const absl::StatusOr<std::string> device_uuid = DeviceUuid(*client, args);
  if (!device_uuid.ok()) return CallError(device_uuid.status());
  std::vector<std::string> backends = args.GetAll("--candidate");
  if (backends.empty()) backends.emplace_back();
  std::vector<CandidateResult> candidates;
  for (const std::string& backend : backends) {
    auto candidate = CheckCandidate(*client, args, {backend, *device_uuid}, *cases, *options);
    if (!candidate.ok()) return CallError(candidate.status());
    candidates.push_back(*std::move(candidate));
  }
  return Report(candidates);
}

}  // namespace rlk::cli
