// CheckH3Chain: a chain beside its reference.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "client/cpp/h3_chain.h"
#include "client/cpp/h3_side.h"
#include "kernels/core/counter_random.h"
#include "kernels/core/status.h"

namespace rlk::client {
namespace {

constexpr int64_t kCountMax = 4096;
constexpr int64_t kUsualCount = 4;

std::vector<float> RandomTimesteps(uint64_t seed) {
  std::vector<float> values;
  for (uint64_t i = 0; i < kUsualCount; ++i) {
    values.push_back(static_cast<float>(RandomBits(seed, i) >> 40) * 0x1p-24f);
  }
  return values;
}

absl::StatusOr<std::vector<int64_t>> Counts(const H3CheckOptions& options, int64_t available) {
  if (available < 1 || available > kCountMax) {
    return InvalidArgument(Reason::kLimitExceeded, "timesteps", std::to_string(available),
                           "1 to " + std::to_string(kCountMax), "there are too many, or none");
  }
  if (options.counts.empty()) {
    std::vector<int64_t> counts;
    for (int64_t count = 1; count <= std::min(available, kUsualCount); ++count) {
      counts.push_back(count);
    }
    if (available > kUsualCount) counts.push_back(available);
    return counts;
  }
  for (const int64_t count : options.counts) {
    if (count >= 1 && count <= available) continue;
    return InvalidArgument(Reason::kLimitExceeded, "counts", std::to_string(count),
                           "1 to " + std::to_string(available), "there are not so many timesteps");
  }
  return options.counts;
}

bool OnHost(const std::string& backend) { return backend == "cpu" || backend == "golden"; }

// Whether a tensor has something of its own for each timestep; gradients of weights have not.
bool HasRows(const std::string& name, const H3Sizes& sizes) {
  for (const H3Role& role : H3Roles(sizes)) {
    if (name == std::string("grad_") + role.name) return false;
  }
  return true;
}

H3Verdict VerdictOf(const std::vector<H3Output>& outputs) {
  const auto differs = [&outputs](auto part) {
    return std::any_of(outputs.begin(), outputs.end(),
                       [part](const H3Output& output) { return !(output.*part).passed(); });
  };
  if (differs(&H3Output::alone)) return H3Verdict::kInjected;
  return differs(&H3Output::chain) ? H3Verdict::kInherited : H3Verdict::kPassed;
}

// The weights of the chain under check, and what the reference's stages made. That these lie on the
// host is no matter: a call takes them to the device of the weights.
H3Values ReferenceInputs(const H3StageSpec& stage, const H3Values& checked,
                         const H3Values& reference) {
  H3Values inputs;
  for (const auto& [input, name] : stage.inputs) {
    const bool made = !reference.at(name).digest.empty();
    inputs[name] = made ? reference.at(name) : checked.at(name);
  }
  return inputs;
}

class ChainCheck {
 public:
  ChainCheck(const Client& client, const H3CheckOptions& options)
      : client_(client), options_(options), kept_weights_(client) {}

  absl::StatusOr<H3Report> Run(const rlk::v1::WeightsManifest& manifest);

 private:
  // What a count's rows look like: for each output, the digest of each row (the elements of one
  // that has no rows of its own).
  using Rows = std::map<std::string, std::string>;

  absl::Status Load(const rlk::v1::WeightsManifest& manifest);
  absl::StatusOr<std::string> HostUuid() const;
  absl::Status CheckCount(int64_t count);
  absl::StatusOr<H3StageReport> CheckStage(size_t at, int64_t count, H3Values& checked,
                                           H3Values& reference, KeptTensors& kept, Rows& rows);
  absl::StatusOr<rlk::v1::Comparison> Compare(const H3StageSpec& stage, const H3Value& checked,
                                              const H3Value& reference) const;
  absl::Status AddRows(const std::string& name, const H3Value& value, Rows& rows) const;
  absl::Status DropUnused(size_t at, const H3Values& values, KeptTensors& kept) const;
  absl::Status CheckThroughClient(int64_t count);
  void CompareRows();
  void FindFirst();
  void Tell(int64_t count, const std::string& stage, const std::string& what) const {
    if (!options_.progress) return;
    options_.progress("T = " + std::to_string(count) + ", " + stage + ", " + what);
  }
  TensorRef Timesteps(int64_t count) const {
    return {.dtype = DType::kF32, .shape = {count}, .data = report_.timesteps.data()};
  }

  const Client& client_;
  const H3CheckOptions& options_;
  KeptTensors kept_weights_;
  std::vector<const H3StageSpec*> stages_;
  H3Weights checked_weights_, reference_weights_;
  H3RunOptions reference_run_;
  std::map<int64_t, Rows> rows_;
  H3Report report_;
};

absl::StatusOr<std::string> ChainCheck::HostUuid() const {
  RLK_ASSIGN_OR_RETURN(const rlk::v1::GetInfoResponse info, client_.GetInfo());
  for (const auto& device : info.devices()) {
    if (device.device().kind() == "cpu") return device.device().uuid();
  }
  return absl::FailedPreconditionError("the server lists no host");
}

// One copy for each device: the reference runs on the host, whose kernels cannot read a GPU.
absl::Status ChainCheck::Load(const rlk::v1::WeightsManifest& manifest) {
  RLK_ASSIGN_OR_RETURN(const std::string host, HostUuid());
  H3LoadOptions load = options_.load;
  if (OnHost(options_.run.backend)) load.device_uuid = host;
  RLK_ASSIGN_OR_RETURN(checked_weights_, LoadH3Weights(client_, manifest, load));
  kept_weights_.Add(checked_weights_.tensors);
  if (!OnHost(options_.reference) || checked_weights_.device_uuid() == host) {
    reference_weights_ = checked_weights_;
    return absl::OkStatus();
  }
  load.device_uuid = host;
  RLK_ASSIGN_OR_RETURN(reference_weights_, LoadH3Weights(client_, manifest, load));
  kept_weights_.Add(reference_weights_.tensors);
  return absl::OkStatus();
}

absl::StatusOr<H3Report> ChainCheck::Run(const rlk::v1::WeightsManifest& manifest) {
  if (options_.real_weights) RLK_RETURN_IF_ERROR(RequireRealWeights(manifest));
  RLK_ASSIGN_OR_RETURN(stages_, SelectH3Stages(options_.run.stages, options_.run.backward));
  RLK_RETURN_IF_ERROR(CheckH3Contracts(options_.run.contracts));
  report_.timesteps =
      options_.timesteps.empty() ? RandomTimesteps(options_.seed) : options_.timesteps;
  RLK_ASSIGN_OR_RETURN(const std::vector<int64_t> counts,
                       Counts(options_, static_cast<int64_t>(report_.timesteps.size())));
  report_.reference = options_.reference;
  report_.synthetic = manifest.synthetic();
  reference_run_ = options_.run;
  reference_run_.backend = options_.reference;
  if (options_.reference == "golden") reference_run_.contracts.clear();
  if (options_.progress) options_.progress("loading the weights");
  RLK_RETURN_IF_ERROR(Load(manifest));
  report_.sizes = checked_weights_.sizes;
  for (const int64_t count : counts) {
    RLK_RETURN_IF_ERROR(CheckCount(count));
    RLK_RETURN_IF_ERROR(CheckThroughClient(count));
  }
  CompareRows();
  FindFirst();
  return std::move(report_);
}

absl::Status ChainCheck::CheckCount(int64_t count) {
  const bool gradients = stages_.size() > kH3ForwardStages;
  KeptTensors kept(client_);
  RLK_ASSIGN_OR_RETURN(H3Values checked, StartH3Values(client_, checked_weights_, Timesteps(count),
                                                       options_.run, gradients, kept));
  RLK_ASSIGN_OR_RETURN(
      H3Values reference,
      StartH3Values(client_, reference_weights_, Timesteps(count), options_.run, gradients, kept));
  H3CountReport report{.count = count, .stages = {}};
  for (size_t at = 0; at < stages_.size(); ++at) {
    RLK_ASSIGN_OR_RETURN(H3StageReport stage,
                         CheckStage(at, count, checked, reference, kept, rows_[count]));
    report.stages.push_back(std::move(stage));
  }
  report_.counts.push_back(std::move(report));
  return absl::OkStatus();
}

absl::StatusOr<H3StageReport> ChainCheck::CheckStage(size_t at, int64_t count, H3Values& checked,
                                                     H3Values& reference, KeptTensors& kept,
                                                     Rows& rows) {
  const H3StageSpec& stage = *stages_[at];
  H3StageReport report;
  report.stage = stage.name;
  report.method = stage.method;
  report.same_inputs =
      std::all_of(stage.inputs.begin(), stage.inputs.end(), [&](const auto& input) {
        return checked.at(input.second).digest == reference.at(input.second).digest;
      });
  Tell(count, stage.name, options_.reference);
  RLK_ASSIGN_OR_RETURN(
      H3StageRun expected,
      RunH3Stage(client_, stage, reference, reference_weights_, reference_run_, {}, kept));
  Tell(count, stage.name, "the chain");
  RLK_ASSIGN_OR_RETURN(H3StageRun made, RunH3Stage(client_, stage, checked, checked_weights_,
                                                   options_.run, {}, kept));
  H3StageRun alone;
  if (!report.same_inputs) {
    Tell(count, stage.name, "on the inputs of " + options_.reference);
    const H3Values inputs = ReferenceInputs(stage, checked, reference);
    RLK_ASSIGN_OR_RETURN(
        alone, RunH3Stage(client_, stage, inputs, checked_weights_, options_.run, {}, kept));
  }
  for (const auto& [output, name] : stage.outputs) {
    H3Output& compared = report.outputs.emplace_back();
    compared.name = name;
    const H3Value& right = expected.outputs.at(name);
    RLK_ASSIGN_OR_RETURN(compared.chain, Compare(stage, made.outputs.at(name), right));
    compared.alone = compared.chain;
    if (report.same_inputs) continue;
    RLK_ASSIGN_OR_RETURN(compared.alone, Compare(stage, alone.outputs.at(name), right));
  }
  report.verdict = VerdictOf(report.outputs);
  for (const auto& [name, value] : made.outputs) RLK_RETURN_IF_ERROR(AddRows(name, value, rows));
  RLK_RETURN_IF_ERROR(DropUnused(stages_.size(), alone.outputs, kept));
  RLK_RETURN_IF_ERROR(DropUnused(at + 1, made.outputs, kept));
  RLK_RETURN_IF_ERROR(DropUnused(at + 1, expected.outputs, kept));
  report.checked = std::move(made.call);
  report.reference = std::move(expected.call);
  for (auto& [name, value] : made.outputs) checked[name] = std::move(value);
  for (auto& [name, value] : expected.outputs) reference[name] = std::move(value);
  return report;
}

absl::StatusOr<rlk::v1::Comparison> ChainCheck::Compare(const H3StageSpec& stage,
                                                        const H3Value& checked,
                                                        const H3Value& reference) const {
  CompareArgs args{.left = checked.ref, .right = reference.ref};
  args.timeout = options_.run.timeout;
  args.options.set_without_digests(true);
  if (options_.reference == "golden") {
    RLK_ASSIGN_OR_RETURN(const wire::MethodBinding* const method, client_.FindMethod(stage.method));
    args.options.set_judgment(rlk::v1::JUDGMENT_ACCURACY);
    auto& row = *args.options.mutable_tolerance();
    row.set_op_class(static_cast<rlk::v1::OpClass>(method->signature.op_class));
    row.set_gradient(std::string(stage.method).ends_with(".backward"));
  } else {
    args.options.set_judgment(rlk::v1::JUDGMENT_PARITY);
  }
  return client_.Compare(args);
}

absl::Status ChainCheck::AddRows(const std::string& name, const H3Value& value, Rows& rows) const {
  if (!HasRows(name, report_.sizes)) return absl::OkStatus();
  if (value.ref.shape.rank() == 1) {
    RLK_ASSIGN_OR_RETURN(const Tensor elements, client_.Get(*value.resident));
    rows[name].assign(reinterpret_cast<const char*>(elements.bytes().data()),
                      elements.bytes().size());
    return absl::OkStatus();
  }
  RLK_ASSIGN_OR_RETURN(const TensorDigests digests,
                       client_.Digest({.tensor = value.ref, .rows = true}));
  rows[name] = digests.row_digests;
  return absl::OkStatus();
}

// Releases those that no stage from `at` on takes.
absl::Status ChainCheck::DropUnused(size_t at, const H3Values& values, KeptTensors& kept) const {
  for (const auto& [name, value] : values) {
    if (!value.resident || TakenLater(stages_, at, name)) continue;
    RLK_RETURN_IF_ERROR(kept.Drop(*value.resident));
  }
  return absl::OkStatus();
}

absl::Status ChainCheck::CheckThroughClient(int64_t count) {
  Tell(count, "all stages", "through the client");
  H3RunOptions options = options_.run;
  options.through_client = true;
  KeptTensors kept(client_);
  RLK_ASSIGN_OR_RETURN(const H3Run run,
                       RunH3Chain(client_, checked_weights_, Timesteps(count), options));
  for (const auto& [name, tensor] : run.tensors) kept.Add(tensor);
  const std::vector<H3StageReport>& stages = report_.counts.back().stages;
  for (size_t i = 0; i < run.calls.size(); ++i) {
    const auto& ours = stages.at(i).checked.report.output_digests();
    const auto& again = run.calls[i].report.output_digests();
    for (int k = 0; k < ours.size(); ++k) {
      ++report_.digests_compared;
      if (k < again.size() && ours[k].digest() == again[k].digest()) continue;
      report_.through_client_differs.push_back(run.calls[i].stage + " " + ours[k].name() +
                                               ", T = " + std::to_string(count));
    }
  }
  return absl::OkStatus();
}

// Each count beside the largest one.
void ChainCheck::CompareRows() {
  if (rows_.empty()) return;
  const auto& [most, widest] = *rows_.rbegin();
  for (const auto& [count, rows] : rows_) {
    if (count == most) continue;
    for (const H3StageSpec* stage : stages_) {
      for (const auto& [output, name] : stage->outputs) {
        const auto found = rows.find(name);
        if (found == rows.end()) continue;
        const std::string& all = widest.at(name);
        const size_t part = all.size() / static_cast<size_t>(most);
        report_.rows_compared += count;
        for (size_t t = 0; t < static_cast<size_t>(count); ++t) {
          if (found->second.compare(t * part, part, all, t * part, part) == 0) continue;
          report_.rows_that_differ.push_back(
              std::string(stage->name) + " " + name + ", T = " + std::to_string(count) +
              ": timestep " + std::to_string(t) +
              " has other bits than with T = " + std::to_string(most));
          break;
        }
      }
    }
  }
}

void ChainCheck::FindFirst() {
  for (size_t at = 0; at < stages_.size() && !report_.first; ++at) {
    for (const H3CountReport& count : report_.counts) {
      const H3StageReport& stage = count.stages[at];
      if (report_.first || stage.verdict == H3Verdict::kPassed) continue;
      for (const H3Output& output : stage.outputs) {
        const bool injected = stage.verdict == H3Verdict::kInjected;
        if (report_.first || (injected ? output.alone : output.chain).passed()) continue;
        report_.first = {.stage = stage.stage,
                         .output = output.name,
                         .verdict = stage.verdict,
                         .count = count.count};
      }
    }
  }
}

}  // namespace

absl::StatusOr<H3Report> CheckH3Chain(const Client& client,
                                      const rlk::v1::WeightsManifest& manifest,
                                      const H3CheckOptions& options) {
  return ChainCheck(client, options).Run(manifest);
}

}  // namespace rlk::client
