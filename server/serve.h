// The program from its arguments to its exit code. `main` adds nothing; tests add a faulty device.
#pragma once

#include <string>
#include <vector>

#include "server/server.h"

namespace rlk::server {

enum ExitCode { kDrained = 0, kStartFailed = 1, kWrongFlags = 2, kDeviceLost = 3 };

// Serves until SIGTERM, SIGINT or the loss of the last healthy device, and then ends the process.
// Returns the exit code where it does not come to serve. Call it before any thread exists.
// `hooks.on_device_lost` is its own.
int RunServer(const std::vector<std::string>& arguments, ServerHooks hooks = {});

}  // namespace rlk::server
