// rlk record, rlk replay: what is in a recording, and whether another server gives the same bits.
#include <cmath>
#include <map>

#include "client/cli/command.h"
#include "client/cli/render.h"
#include "client/cli/replay.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

struct Contents {
  std::map<std::string, int64_t> methods;
  int64_t calls = 0, without_tensors = 0;
};

absl::StatusOr<std::unique_ptr<RecordingFile>> OpenRecording(const Args& args, const char* usage) {
  if (args.positional().size() != 1) return absl::InvalidArgumentError(usage);
  return RecordingFile::Open(args.positional()[0], args.Has("--incomplete"));
}

absl::StatusOr<Contents> Count(wire::RecordingReader& recording) {
  Contents contents;
  for (;;) {
    RLK_ASSIGN_OR_RETURN(const std::optional<wire::RecordedCall> call, recording.Next());
    if (!call) return contents;
    ++contents.calls;
    ++contents.methods[call->method];
    if (!HasInputs(recording, *call)) ++contents.without_tensors;
  }
}

Json RecordingJson(const std::string& path, const wire::RecordingReader& recording) {
  const wire::RecordingStart& start = recording.start();
  Json json = {{"file", path},
               {"version", wire::kRecordingVersion},
               {"server_version", start.version},
               {"provenance_id", start.provenance_id},
               {"server_id", start.server_id},
               {"started_unix_ns", start.time_ns},
               {"complete", recording.end().has_value()},
               {"calls", recording.calls()},
               {"tensors", recording.tensors()}};
  // What an unfinished recording lacks is not known.
  const auto& end = recording.end();
  json["dropped_queue"] = end ? Json(end->dropped_queue) : Json();
  json["dropped_file"] = end ? Json(end->dropped_full) : Json();
  json["failed"] = end ? Json(end->failed) : Json();
  return json;
}

std::string RecordingText(const std::string& path, const wire::RecordingReader& recording) {
  const wire::RecordingStart& start = recording.start();
  std::string text = path + ": " + std::to_string(recording.calls()) + " calls, " +
                     std::to_string(recording.tensors()) + " tensors, of rlk-server " +
                     start.version + ", provenance " + start.provenance_id + "\n";
  if (const auto& end = recording.end(); end) {
    text += "not in it: " + std::to_string(end->dropped_queue) +
            " calls for which the queue was full, " + std::to_string(end->dropped_full) +
            " for which the file was, " + std::to_string(end->failed) + " that failed\n";
  } else {
    text += "cut off: what comes after is not known\n";
  }
  return text;
}

Json CallJson(const wire::RecordedCall& call) {
  return {{"number", call.number},     {"method", call.method},  {"contract", call.contract},
          {"backend", call.backend},   {"kernel", call.kernel},  {"device", call.device},
          {"trace_id", call.trace_id}, {"time_ns", call.time_ns}};
}

Json AttributeJson(const wire::RecordedAttribute& attribute) {
  switch (attribute.kind) {
    case AttributeKind::kF32:
    case AttributeKind::kF64:
      // JSON has no other numbers.
      if (std::isfinite(attribute.number)) return attribute.number;
      return std::to_string(attribute.number);
    case AttributeKind::kI64:
      break;
    case AttributeKind::kBool:
      return attribute.integer != 0;
    case AttributeKind::kDType:
      return std::string(DTypeName(static_cast<DType>(attribute.integer)));
    case AttributeKind::kEnum:
      return attribute.text;
  }
  return attribute.integer;
}

// As the caller gave them: what it left out has the contract's default.
std::string AttributesText(const wire::RecordedCall& call) {
  std::string text;
  for (const wire::RecordedAttribute& attribute : call.attributes) {
    const Json value = AttributeJson(attribute);
    text += " " + attribute.name + "=";
    text += value.is_string() ? value.get<std::string>() : Dump(value);
  }
  return text.empty() ? "none given" : text.substr(1);
}

Json DifferenceJson(const CallDifference& difference) {
  Json json = CallJson(difference.call);
  Json inputs = Json::array(), outputs = Json::array(), attributes = Json::object();
  for (const wire::RecordedTensor& input : difference.call.inputs) {
    inputs.push_back({{"name", input.name},
                      {"dtype", std::string(DTypeName(input.dtype))},
                      {"shape", std::vector<int64_t>(input.shape.begin(), input.shape.end())},
                      {"digest", input.digest.Text()}});
  }
  for (const wire::RecordedAttribute& attribute : difference.call.attributes) {
    attributes[attribute.name] = AttributeJson(attribute);
  }
  for (const OutputDifference& output : difference.outputs) {
    outputs.push_back({{"name", output.name},
                       {"recorded", output.recorded.empty() ? Json() : Json(output.recorded)},
                       {"replayed", output.replayed.empty() ? Json() : Json(output.replayed)}});
  }
  json["inputs"] = std::move(inputs);
  json["attributes"] = std::move(attributes);
  json["outputs"] = std::move(outputs);
  json["replayed_on"] = {{"backend", difference.backend},
                         {"kernel", difference.kernel},
                         {"device", difference.device},
                         {"provenance_id", difference.provenance_id}};
  return json;
}

Json ResultJson(const Args& args, const wire::RecordingReader& recording,
                const ReplayResult& result) {
  Json refused = Json::object();
  for (const auto& [reason, count] : result.refused) refused[reason] = count;
  Json json = {{"recording", RecordingJson(args.positional()[0], recording)},
               {"server", ServerAddress(args)},
               {"calls", result.calls},
               {"equal", result.equal},
               {"different", result.different},
               {"without_tensors", result.without_tensors},
               {"refused", std::move(refused)},
               {"first_different", Json()},
               {"first_refused", Json()}};
  if (result.first_different) json["first_different"] = DifferenceJson(*result.first_different);
  if (result.first_refused) {
    json["first_refused"] = CallJson(result.first_refused->first);
    json["first_refused"]["error"] = StatusJson(result.first_refused->second);
  }
  return json;
}

std::string ResultText(const Args& args, const wire::RecordingReader& recording,
                       const ReplayResult& result) {
  std::string text = RecordingText(args.positional()[0], recording) + "replayed at " +
                     ServerAddress(args) + ": " + std::to_string(result.equal) +
                     " calls with the same bits, " + std::to_string(result.different) +
                     " with others, " + std::to_string(result.refused_calls()) + " refused, " +
                     std::to_string(result.without_tensors) +
                     " not made: their tensors are not in the recording\n";
  if (!result.first_different) return text;
  const CallDifference& first = *result.first_different;
  text += "\nthe first with other bits is call " + std::to_string(first.call.number) + ", " +
          first.call.method + " under " + first.call.contract + "\n  attributes  " +
          AttributesText(first.call) + "\n";
  Table table({"", "backend", "kernel", "device"});
  table.Add({"recorded", first.call.backend, first.call.kernel, first.call.device});
  table.Add({"replayed", first.backend, first.kernel, first.device});
  text += table.Text(2);
  Table outputs({"tensor", "recorded", "replayed"});
  for (const wire::RecordedTensor& input : first.call.inputs) {
    outputs.Add({"in  " + input.name, input.digest.Text(), "the same"});
  }
  for (const OutputDifference& output : first.outputs) {
    outputs.Add({"out " + output.name, output.recorded, output.replayed});
  }
  return text + "\n" + outputs.Text(2);
}

}  // namespace

Outcome RunRecord(const Args& args) {
  const auto file = OpenRecording(
      args, "rlk record takes one FILE, which rlk-server --record wrote: it says what is in it");
  if (!file.ok()) return UsageError(file.status());
  wire::RecordingReader& recording = (*file)->reader();
  const absl::StatusOr<Contents> contents = Count(recording);
  if (!contents.ok()) return UsageError(contents.status());
  Outcome outcome;
  Json json = RecordingJson(args.positional()[0], recording);
  Json methods = Json::object();
  Table table({"method", "calls"});
  for (const auto& [method, calls] : contents->methods) {
    methods[method] = calls;
    table.Add({method, std::to_string(calls)});
  }
  json["without_tensors"] = contents->without_tensors;
  json["methods"] = std::move(methods);
  outcome.json = Dump(json);
  outcome.text = RecordingText(args.positional()[0], recording) +
                 std::to_string(contents->without_tensors) +
                 " calls cannot be replayed: their tensors are not in it\n\n" + table.Text();
  return outcome;
}

Outcome RunReplay(const Args& args) {
  const auto file =
      OpenRecording(args, "rlk replay takes one FILE, which rlk-server --record wrote");
  if (!file.ok()) return UsageError(file.status());
  wire::RecordingReader& recording = (*file)->reader();
  const auto client = Connect(args);
  if (!client.ok()) return ConnectError(client.status());
  const absl::StatusOr<ReplayResult> result =
      Replay(*client, recording, {args.Get("--backend"), args.Has("--stop")});
  if (!result.ok()) return CallError(result.status());
  Outcome outcome;
  if (result->different > 0) {
    outcome.failures.push_back("call " + std::to_string(result->first_different->call.number) +
                               " is the first with other bits");
  }
  if (result->refused_calls() > 0) {
    outcome.failures.push_back(
        "call " + std::to_string(result->first_refused->first.number) +
        " is the first that was refused: " + std::string(result->first_refused->second.message()));
  }
  // A gate that let nothing through must not look like one that was passed.
  if (result->equal + result->different + result->refused_calls() == 0) {
    outcome.failures.push_back(
        result->calls == 0 ? "no call could be replayed: the recording has none"
                           : "no call could be replayed: record with --record-tensors=true");
  }
  outcome.exit_code = outcome.failures.empty() ? kExitOk : kExitRefused;
  outcome.json = Dump(ResultJson(args, recording, *result));
  outcome.text = ResultText(args, recording, *result);
  return outcome;
}

}  // namespace rlk::cli
