// The program from its arguments to its exit code. `main` adds nothing; tests add a faulty device.
#pragma once

#include <string>
#include <vector>

#include "server/server.h"

namespace rlk::server {

enum ExitCode { kDrained = 0, kStartFailed = 1, kWrongFlags = 2, kDeviceLost = 3 };

// Serves until SIGTERM, SIGINT or the loss of the last healthy device. Call it before any thread
// exists. `hooks.on_device_lost` is its own. Ends the process itself after the loss of a device.
int RunServer(const std::vector<std::string>& arguments, ServerHooks hooks = {});

}  // namespace rlk::server
