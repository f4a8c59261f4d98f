// Which binary this is and where it runs: the record that results refer to.
#pragma once

#include <string>
#include <vector>

#include "server/engine/cuda_device.h"
#include "server/engine/tolerance.h"
#include "server/rpc/server_facts.h"

namespace rlk::server {

// `id` is the first 32 hex digits of the SHA-256 of all other fields, each as NAME=VALUE and a line
// feed, in the order of the struct; absent fields are left out.
// `devices` are those of the server; the record names its GPUs.
Provenance MakeProvenance(const CudaProbe& probe, const std::vector<DeviceInfo>& devices,
                          const ToleranceContract& tolerance);

// "rlk-server 0.1.0 (commit ..., dirty)".
std::string VersionText();

}  // namespace rlk::server
