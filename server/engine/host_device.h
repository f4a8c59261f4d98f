// The host as a device: kernels run on the executor's thread (or the caller's, for small calls)
// and a thread pool. Single-piece aligned payloads are used in place.
#pragma once

#include <cstdint>
#include <memory>

#include "server/engine/device.h"

namespace rlk::server {

struct HostDeviceOptions {
  // Threads of the pool, the executor's own included; 0 takes the number of cores.
  int threads = 0;
  // Output memory is filled with 0xA5 before the launch.
  bool poison_outputs = false;
  // Large output buffers that lie idle for the next call, in bytes.
  int64_t idle_bytes_max = int64_t{128} << 20;
};

std::unique_ptr<Device> MakeHostDevice(const HostDeviceOptions& options);

}  // namespace rlk::server
