// gRPC's own log lines, as lines of ours.
#pragma once

#include "server/log/log.h"

namespace rlk::server {

// From now on gRPC logs through `logger`, which must outlive every use of gRPC. gRPC's errors are
// warnings of ours (most say what a peer did), the rest is debug.
void RouteGrpcLog(const Logger* logger);

}  // namespace rlk::server
