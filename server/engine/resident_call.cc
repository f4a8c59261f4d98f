#include "server/engine/resident_call.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/core/status.h"
#include "server/engine/device.h"

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

bool SameSlot(const ArenaSlot& a, const ArenaSlot& b) {
  return a.generation == b.generation && a.arena == b.arena;
}

// Whole tensors and slots are compared, not ranges: the same one twice is never right.
bool SamePlace(const Placement& a, const Placement& b) {
  if (a.kind != b.kind) return false;
  if (a.kind == PlacementKind::kArena) return SameSlot(a.arena, b.arena);
  return a.into && b.into && a.into->id == b.into->id;
}

bool LiesIn(const TensorArg& input, const Placement& place) {
  if (place.kind == PlacementKind::kArena) {
    return input.source == TensorSource::kArena && SameSlot(input.arena, place.arena);
  }
  return place.into && input.source == TensorSource::kResident &&
         input.resident.id == place.into->id;
}

absl::Status CheckOverlap(const Call& call, const std::string& field, const Placement& place,
                          const std::vector<const Placement*>& taken) {
  for (const TensorArg& input : call.inputs) {
    if (!LiesIn(input, place)) continue;
    return InvalidArgument(Reason::kPlacementOverlap, field, InputName(call, input),
                           "a tensor or slot that is no input of the call",
                           "the output would lie over an input");
  }
  for (const Placement* const other : taken) {
    if (!SamePlace(*other, place)) continue;
    return InvalidArgument(Reason::kPlacementOverlap, field, "another output",
                           "a tensor or slot that takes no other output",
                           "the output would lie over another output");
  }
  return absl::OkStatus();
}

absl::Status NoArenas(std::string_view field) {
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {Reason::kPlacementUnavailable, std::string(field), "arena", "inline, resident"},
                   "this server has no arenas");
}

}  // namespace

absl::StatusOr<SharedMemory> Device::AllocateShared(int64_t) {
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {Reason::kPlacementUnavailable, "device_uuid", info().uuid, {}},
                   sharing_problem());
}

absl::StatusOr<DeviceInfo> TensorResolver::LocateSlot(const Principal*, std::string_view field,
                                                      const ArenaSlot&) {
  return NoArenas(field);
}

absl::StatusOr<std::unique_ptr<ResidentOutput>> TensorResolver::ReserveSlot(
    const std::shared_ptr<const Principal>&, std::string_view field, const PlannedOutput&,
    const ArenaSlot&, const DeviceInfo&) {
  return NoArenas(field);
}

absl::Status ResolveInputs(Call& call, TensorResolver* resolver) {
  for (TensorArg& input : call.inputs) {
    if (input.source == TensorSource::kInline) continue;
    const bool arena = input.source == TensorSource::kArena;
    if (resolver != nullptr && (!arena || resolver->has_arenas())) {
      RLK_RETURN_IF_ERROR(resolver->Resolve(call.principal.get(), InputName(call, input), input));
      continue;
    }
    return InvalidArgument(Reason::kSourceNotSupported, InputName(call, input),
                           arena ? "arena" : "resident",
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
    const bool arena = placement.kind == PlacementKind::kArena;
    if ((!placement.into && !arena) || resolver == nullptr || call.principal == nullptr) continue;
    const std::string field = "options.outputs." + name;
    const Principal* const principal = call.principal.get();
    RLK_ASSIGN_OR_RETURN(const DeviceInfo info,
                         arena ? resolver->LocateSlot(principal, field, placement.arena)
                               : resolver->Locate(principal, field, *placement.into));
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
  static const Placement kNew = {.kind = PlacementKind::kResident, .arena = {}, .into = {}};
  std::vector<const Placement*> taken;
  job.residents.resize(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].resident) continue;
    const std::string& name = job.method().signature.outputs[i].name;
    const std::string field = "options.outputs." + name;
    const auto asked = call.options.outputs.find(name);
    const Placement& place = asked == call.options.outputs.end() ? kNew : asked->second;
    RLK_RETURN_IF_ERROR(CheckOverlap(call, field, place, taken));
    taken.push_back(&place);
    if (place.kind == PlacementKind::kArena) {
      RLK_ASSIGN_OR_RETURN(
          job.residents[i],
          resolver->ReserveSlot(call.principal, field, outputs[i], place.arena, device));
    } else {
      RLK_ASSIGN_OR_RETURN(job.residents[i], resolver->Reserve(call.principal, field, outputs[i],
                                                               place.into, device));
    }
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
      resident->Commit(digest, output);
      outcome->report.output_bytes[static_cast<size_t>(resident->place())] +=
          ByteCount(output.shape, output.dtype);
      output.data = {};
    }
  } else {
    for (const auto& resident : job.residents) {
      if (resident != nullptr) resident->Abandon();
    }
  }
  if (outcome.status().code() == absl::StatusCode::kUnavailable) return;
  for (TensorArg& input : job.call.inputs) {
    if (input.source == TensorSource::kInline) continue;
    input.pin.reset();
    input.data = {};
    input.memory.reset();
  }
  job.residents.clear();
}

}  // namespace rlk::server
