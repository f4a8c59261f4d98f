#include "client/cli/command.h"
#include "client/cli/render.h"
#include "rlk/v1/server.pb.h"

namespace rlk::cli {
namespace {

template <typename Words>
std::vector<std::string> ToVector(const Words& words) {
  return {words.begin(), words.end()};
}

Json Known(bool known, const Json& value) { return known ? value : Json(nullptr); }

Json ProvenanceJson(const rlk::v1::Provenance& p) {
  return {{"id", p.id()},
          {"version", p.version()},
          {"git_commit", Known(p.has_git_commit(), p.git_commit())},
          {"git_dirty", Known(p.has_git_dirty(), p.git_dirty())},
          {"compiler", p.compiler()},
          {"compile_flags", p.compile_flags()},
          {"cuda_architectures", ToVector(p.cuda_architectures())},
          {"cuda_runtime", Known(p.has_cuda_runtime(), p.cuda_runtime())},
          {"cuda_driver", Known(p.has_cuda_driver(), p.cuda_driver())},
          {"tolerance_contract_version", p.tolerance_contract_version()},
          {"tolerance_contract_sha256", p.tolerance_contract_sha256()},
          {"cpu_isa", p.cpu_isa()}};
}

Json InfoJson(const std::string& address, const rlk::v1::GetInfoResponse& info) {
  Json devices = Json::array(), backends = Json::array(), capabilities = Json::array();
  Json limits = Json::object();
  for (const auto& device : info.devices()) {
    devices.push_back({{"device", DeviceJson(device.device())},
                       {"compute_capability", device.compute_capability()},
                       {"multiprocessor_count", device.multiprocessor_count()},
                       {"memory_bytes", device.memory_bytes()},
                       {"healthy", device.healthy()}});
  }
  for (const auto& backend : info.backends()) {
    backends.push_back({{"name", backend.name()},
                        {"available", backend.available()},
                        {"reason", backend.reason()},
                        {"known_answers_passed", backend.known_answers_passed()}});
  }
  for (const auto& limit : info.limits()) {
    limits[limit.name()] = {{"value", limit.value()}, {"meaning", limit.meaning()}};
  }
  for (const auto& capability : info.capabilities()) {
    capabilities.push_back({{"name", capability.name()},
                            {"available", capability.available()},
                            {"reason", capability.reason()}});
  }
  return {{"address", address},
          {"server_id", info.server_id()},
          {"uptime_seconds", info.uptime_seconds()},
          {"provenance", ProvenanceJson(info.provenance())},
          {"devices", std::move(devices)},
          {"backends", std::move(backends)},
          {"limits", std::move(limits)},
          {"capabilities", std::move(capabilities)}};
}

std::string Availability(bool available, const std::string& reason) {
  return available ? "available" : "not available: " + reason;
}

std::string InfoText(const std::string& address, const rlk::v1::GetInfoResponse& info) {
  std::string text = "server " + info.server_id() + " at " + address + ", up " +
                     Short(info.uptime_seconds()) + " s\n\n";
  Table devices({"device", "capability", "SMs", "memory", "state"});
  for (const auto& device : info.devices()) {
    devices.Add(
        {DeviceText(device.device()),
         device.compute_capability().empty() ? "-" : device.compute_capability(),
         device.multiprocessor_count() == 0 ? "-" : std::to_string(device.multiprocessor_count()),
         Short(static_cast<double>(device.memory_bytes()) / (int64_t{1} << 30)) + " GiB",
         device.healthy() ? "healthy" : "OUT OF ROTATION"});
  }
  Table backends({"backend", "state", "known answers passed"});
  for (const auto& backend : info.backends()) {
    backends.Add({backend.name(), Availability(backend.available(), backend.reason()),
                  std::to_string(backend.known_answers_passed())});
  }
  Table provenance({"provenance", ""});
  const Json provenance_json = ProvenanceJson(info.provenance());
  for (const auto& [name, value] : provenance_json.items()) {
    std::string cell = value.is_null()     ? "unknown"
                       : value.is_string() ? value.get<std::string>()
                       : value.is_array() ? client::JoinNames(value.get<std::vector<std::string>>())
                                          : value.dump();
    provenance.Add({"  " + name, std::move(cell)});
  }
  Table limits({"limit", "value", "meaning"});
  for (const auto& limit : info.limits()) {
    limits.Add({limit.name(), std::to_string(limit.value()), limit.meaning()});
  }
  Table capabilities({"capability", "state"});
  for (const auto& capability : info.capabilities()) {
    capabilities.Add(
        {capability.name(), Availability(capability.available(), capability.reason())});
  }
  return text + devices.Text() + "\n" + backends.Text() + "\n" + provenance.Text() + "\n" +
         limits.Text() + "\n" + capabilities.Text();
}

}  // namespace

Outcome RunInfo(const Args& args) {
  if (!args.positional().empty()) {
    return UsageError(absl::InvalidArgumentError("rlk info takes no argument"));
  }
  const auto client = Connect(args);
  if (!client.ok()) return ConnectError(client.status());
  const auto info = client->GetInfo();
  if (!info.ok()) return CallError(info.status());
  Outcome outcome;
  outcome.json = Dump(InfoJson(ServerAddress(args), *info));
  outcome.text = InfoText(ServerAddress(args), *info);
  return outcome;
}

}  // namespace rlk::cli
