// gRPC's own log lines, as lines of ours.
#pragma once

#include <chrono>

#include "server/log/log.h"

namespace rlk::server {

// From now on gRPC logs through `logger`, which must outlive every use of gRPC; null ends that.
// gRPC's errors are warnings of ours, the rest is debug. Most errors say what a peer did, and come
// as fast as somebody connects: each place in gRPC's code gets a line at most every ten seconds,
// which says how many it stands for.
void RouteGrpcLog(const Logger* logger,
                  std::chrono::steady_clock::time_point (*now)() = std::chrono::steady_clock::now);

}  // namespace rlk::server
