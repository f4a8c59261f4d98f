#include "server/devices.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "kernels/builtin.h"
#include "server/engine/host_device.h"

namespace rlk::server {
namespace {

bool Offers(const Options& options, DeviceKind kind) {
  if (options.backends.empty()) return true;
  return std::any_of(options.backends.begin(), options.backends.end(),
                     [&](Backend backend) { return BackendDevice(backend) == kind; });
}

}  // namespace

DeviceSet MakeDevices(const Options& options, const Logger& logger) {
  DeviceSet set;
  set.devices.push_back(MakeHostDevice({.threads = options.threads}));
  set.probe = ProbeCuda();
  if (!Offers(options, DeviceKind::kCuda)) {
    set.probe.devices.clear();
    set.probe.reason = "not named in --backends";
    return set;
  }
  for (const DeviceInfo& info : set.probe.devices) {
    const auto start = std::chrono::steady_clock::now();
    auto device = MakeCudaDevice(
        {.ordinal = info.ordinal, .device_bytes_max = options.limits.device_bytes_max});
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (device.ok()) {
      set.devices.push_back(*std::move(device));
      logger.Info("CUDA device", {{"ordinal", info.ordinal},
                                  {"name", info.name},
                                  {"uuid", info.uuid},
                                  {"init_milliseconds", took.count()}});
    } else {
      set.cuda_failure = std::string(device.status().message());
      logger.Error("CUDA device cannot be used",
                   {{"ordinal", info.ordinal}, {"name", info.name}, {"reason", set.cuda_failure}});
    }
  }
  return set;
}

void FillRegistry(const Options& options, const DeviceSet& set, Registry& registry) {
  BuiltinOptions builtin;
  builtin.cuda_reason = set.cuda_failure.empty() ? set.probe.reason : set.cuda_failure;
  builtin.backends = options.backends;
  for (const auto& device : set.devices) {
    const DeviceInfo& info = device->info();
    if (info.kind != DeviceKind::kCuda || builtin.has_cuda) continue;
    builtin.has_cuda = true;
    builtin.compute_capability = info.compute_capability;
    builtin.cuda_ordinal = info.ordinal;
  }
  RegisterBuiltin(builtin, registry);
  if (builtin.has_cuda || set.cuda_failure.empty()) return;
  const BackendState failed = {.failed_to_load = true, .reason = set.cuda_failure};
  for (const Backend backend : {Backend::kCudaSm90, Backend::kCuda}) {
    const bool offered = options.backends.empty() ||
                         std::count(options.backends.begin(), options.backends.end(), backend) > 0;
    if (offered) registry.SetBackend(backend, failed);
  }
}

}  // namespace rlk::server
