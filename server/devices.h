// Which devices and backends this process has.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/registry/registry.h"
#include "server/engine/cuda_device.h"
#include "server/engine/device.h"
#include "server/log/log.h"
#include "server/options.h"

namespace rlk::server {

struct DeviceSet {
  // The host first.
  std::vector<std::unique_ptr<Device>> devices;
  CudaProbe probe;
  // Why no CUDA device could be made although there is one; empty otherwise.
  std::string cuda_failure;
};

// Never fails: what cannot be made is recorded with its reason.
DeviceSet MakeDevices(const Options& options, const Logger& logger);

// Declares the operators and the states of the backends. A CUDA device that exists but could not
// be made is a backend that failed to load: passing over it is a fallback.
void FillRegistry(const Options& options, const DeviceSet& set, Registry& registry);

}  // namespace rlk::server
