#include "client/cli/replay.h"

#include <algorithm>

#include "kernels/core/status.h"
#include "kernels/digest/digest.h"
#include "kernels/registry/named_backends.h"

namespace rlk::cli {
namespace {

client::Attribute AttributeOf(const wire::RecordedAttribute& recorded) {
  switch (recorded.kind) {
    case AttributeKind::kF32:
    case AttributeKind::kF64:
      return recorded.number;
    case AttributeKind::kI64:
      break;
    case AttributeKind::kBool:
      return recorded.integer != 0;
    case AttributeKind::kDType:
      return static_cast<DType>(recorded.integer);
    case AttributeKind::kEnum:
      return recorded.text;
  }
  return recorded.integer;
}

// No other backend has the contracts of those that a call gets by name alone.
std::string BackendFor(const wire::RecordedCall& call, const ReplayOptions& options) {
  for (int i = 0; i < kBackendCount; ++i) {
    const auto backend = static_cast<Backend>(i);
    if (OnlyByName(backend) && call.backend == BackendName(backend)) return call.backend;
  }
  return options.backend;
}

absl::StatusOr<client::CallResult> CallAgain(const client::Client& client,
                                             const wire::RecordingReader& recording,
                                             const wire::RecordedCall& call,
                                             const ReplayOptions& options) {
  client::CallRequest request;
  request.method = call.method;
  for (const wire::RecordedTensor& input : call.inputs) {
    RLK_ASSIGN_OR_RETURN(client::Tensor tensor,
                         client::Tensor::Allocate(input.dtype, input.shape.span()));
    RLK_RETURN_IF_ERROR(recording.Read(input, tensor.mutable_bytes()));
    request.inputs.emplace_back(input.name, tensor.ref());
  }
  for (const wire::RecordedAttribute& attribute : call.attributes) {
    request.attributes[attribute.name] = AttributeOf(attribute);
  }
  request.options.set_contract(call.contract);
  request.options.set_backend(BackendFor(call, options));
  // The bits are compared, whatever is claimed of them.
  request.options.set_minimum_claim(rlk::v1::CLAIM_LEVEL_L0_REPEATABLE);
  for (const std::string& name : call.wanted_outputs) {
    request.options.add_wanted_outputs(name);
  }
  return client.Call(request);
}

std::vector<OutputDifference> Compare(const wire::RecordedCall& call,
                                      const client::CallResult& result) {
  std::vector<OutputDifference> differences;
  for (const wire::RecordedTensor& recorded : call.outputs) {
    const client::Tensor* const tensor = result.Output(recorded.name);
    const std::string now = tensor == nullptr ? "" : ComputeDigest(tensor->view()).Text();
    if (now != recorded.digest.Text()) {
      differences.push_back({recorded.name, recorded.digest.Text(), now});
    }
  }
  for (const auto& [name, tensor] : result.outputs) {
    const bool known = std::any_of(call.outputs.begin(), call.outputs.end(),
                                   [&](const auto& output) { return output.name == name; });
    if (!known) differences.push_back({name, "", ComputeDigest(tensor.view()).Text()});
  }
  return differences;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RecordingFile>> RecordingFile::Open(const std::string& path,
                                                                   bool incomplete) {
  RLK_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  std::unique_ptr<RecordingFile> opened(new RecordingFile(std::move(file)));
  RLK_ASSIGN_OR_RETURN(opened->reader_, wire::RecordingReader::Open(&opened->source_, incomplete));
  return opened;
}

bool HasInputs(const wire::RecordingReader& recording, const wire::RecordedCall& call) {
  return std::all_of(call.inputs.begin(), call.inputs.end(),
                     [&](const auto& input) { return recording.Has(input); });
}

int64_t ReplayResult::refused_calls() const {
  int64_t calls = 0;
  for (const auto& [reason, count] : refused) calls += count;
  return calls;
}

absl::StatusOr<ReplayResult> Replay(const client::Client& client, wire::RecordingReader& recording,
                                    const ReplayOptions& options) {
  ReplayResult replay;
  for (;;) {
    RLK_ASSIGN_OR_RETURN(std::optional<wire::RecordedCall> call, recording.Next());
    if (!call) return replay;
    ++replay.calls;
    if (!HasInputs(recording, *call)) {
      ++replay.without_tensors;
      continue;
    }
    const absl::StatusOr<client::CallResult> result = CallAgain(client, recording, *call, options);
    if (!result.ok()) {
      const std::optional<ErrorDetail> detail = GetErrorDetail(result.status());
      const bool gone = result.status().code() == absl::StatusCode::kUnavailable;
      const bool file = detail && detail->reason == Reason::kFileMismatch;
      if (gone || file) return result.status();
      ++replay.refused[std::string(ReasonName(detail ? detail->reason : Reason::kUnknown))];
      if (!replay.first_refused) replay.first_refused.emplace(*call, result.status());
      continue;
    }
    std::vector<OutputDifference> outputs = Compare(*call, *result);
    if (outputs.empty()) {
      ++replay.equal;
      continue;
    }
    ++replay.different;
    if (!replay.first_different) {
      const rlk::v1::CallReport& report = *result->report;
      replay.first_different =
          CallDifference{*std::move(call),       report.backend(),       report.kernel(),
                         report.device().name(), report.provenance_id(), std::move(outputs)};
    }
    if (options.stop) return replay;
  }
}

}  // namespace rlk::cli
