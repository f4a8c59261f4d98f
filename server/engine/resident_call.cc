#include "server/engine/resident_call.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/core/status.h"

namespace rlk::server {
namespace {

std::string InputName(const Call& call, const TensorArg& input) {
  const std::vector<TensorSpec>& specs = call.method->signature.inputs;
  const auto spec = static_cast<size_t>(input.spec);
  return spec < specs.size() ? specs[spec].name : std::string();
}

absl::Status OtherDevice(const std::string& field, const DeviceInfo& has,
                         const std::string& needed) {
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {Reason::kPlacementUnavailable, field, has.uuid, needed},
                   "the tensor lies on another device; nothing is moved between devices unasked");
}

// Whole tensors are compared, not ranges: the same tensor twice is never right.
absl::Status CheckOverlap(const Call& call, const std::string& field, const TensorHandle& into,
                          const std::vector<std::string>& taken) {
  for (const TensorArg& input : call.inputs) {
    if (input.source != TensorSource::kResident || input.resident.id != into.id) continue;
    return InvalidArgument(Reason::kPlacementOverlap, field, InputName(call, input),
                           "a tensor that is no input of the call",
                           "the output would lie over an input");
  }
  if (std::find(taken.begin(), taken.end(), into.id) == taken.end()) return absl::OkStatus();
  return InvalidArgument(Reason::kPlacementOverlap, field, "another output",
                         "a tensor that takes no other output",
                         "the output would lie over another output");
}

}  // namespace

absl::Status ResolveInputs(Call& call, TensorResolver* resolver) {
  for (TensorArg& input : call.inputs) {
    if (input.source == TensorSource::kInline) continue;
    if (resolver != nullptr && input.source == TensorSource::kResident) {
      RLK_RETURN_IF_ERROR(resolver->Resolve(call.principal.get(), InputName(call, input), input));
      continue;
    }
    return InvalidArgument(Reason::kSourceNotSupported, InputName(call, input),
                           input.source == TensorSource::kResident ? "resident" : "arena",
                           resolver == nullptr ? "data (inline)" : "data (inline), resident",
                           "this server takes no such source");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<DeviceInfo>> HomeDevice(const Call& call, TensorResolver* resolver) {
  std::optional<DeviceInfo> home;
  const auto add = [&home](const std::string& field, const DeviceInfo& info) -> absl::Status {
    if (info.kind == DeviceKind::kHost) return absl::OkStatus();
    if (home && home->uuid != info.uuid) return OtherDevice(field, info, home->uuid);
    home = info;
    return absl::OkStatus();
  };
  for (const TensorArg& input : call.inputs) {
    if (input.memory == nullptr) continue;
    RLK_RETURN_IF_ERROR(add(InputName(call, input), input.memory->device()));
  }
  for (const auto& [name, placement] : call.options.outputs) {
    if (!placement.into || resolver == nullptr || call.principal == nullptr) continue;
    const std::string field = "options.outputs." + name;
    RLK_ASSIGN_OR_RETURN(const DeviceInfo info,
                         resolver->Locate(call.principal.get(), field, *placement.into));
    RLK_RETURN_IF_ERROR(add(field, info));
  }
  return home;
}

absl::Status CheckHome(const std::optional<DeviceInfo>& home, const DeviceInfo& device) {
  if (!home || home->uuid == device.uuid) return absl::OkStatus();
  return OtherDevice("options", *home, device.uuid);
}

absl::Status ReserveOutputs(Job& job, TensorResolver* resolver, const DeviceInfo& device) {
  const std::vector<PlannedOutput>& outputs = job.checked.outputs;
  const auto resident = [](const PlannedOutput& output) { return output.resident; };
  if (std::none_of(outputs.begin(), outputs.end(), resident)) return absl::OkStatus();
  const Call& call = job.call;
  std::vector<std::string> taken;
  job.residents.resize(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].resident) continue;
    const std::string& name = job.method().signature.outputs[i].name;
    const std::string field = "options.outputs." + name;
    std::optional<TensorHandle> into;
    if (const auto placement = call.options.outputs.find(name);
        placement != call.options.outputs.end()) {
      into = placement->second.into;
    }
    if (into) {
      RLK_RETURN_IF_ERROR(CheckOverlap(call, field, *into, taken));
      taken.push_back(into->id);
    }
    RLK_ASSIGN_OR_RETURN(job.residents[i],
                         resolver->Reserve(call.principal, field, outputs[i], into, device));
    if (outputs[i].moved) job.result.report.moved_to_resident.push_back(name);
  }
  return absl::OkStatus();
}

bool LiesOn(const ResidentMemory& memory, const DeviceInfo& device) {
  return memory.device().uuid == device.uuid && memory.device().kind == device.kind;
}

void ConcludeResidents(Job& job, absl::StatusOr<CallResult>& outcome) {
  if (outcome.ok()) {
    for (OutputTensor& output : outcome->outputs) {
      ResidentOutput* const resident = job.resident(static_cast<size_t>(output.spec));
      if (resident == nullptr) continue;
      const std::string& name =
          job.method().signature.outputs[static_cast<size_t>(output.spec)].name;
      std::optional<Digest> digest;
      for (const NamedDigest& known : outcome->report.output_digests) {
        if (known.name == name) digest = known.tensor;
      }
      output.resident = resident->Commit(digest);
      outcome->report.resident_output_bytes += ElementCount(output.shape) * DTypeSize(output.dtype);
      output.data = {};
    }
  } else {
    for (const auto& resident : job.residents) {
      if (resident != nullptr) resident->Abandon();
    }
  }
  if (outcome.status().code() == absl::StatusCode::kUnavailable) return;
  for (TensorArg& input : job.call.inputs) {
    if (input.memory == nullptr) continue;
    input.pin.reset();
    input.data = {};
    input.memory.reset();
  }
  job.residents.clear();
}

}  // namespace rlk::server
