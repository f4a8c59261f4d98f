// The bound on open connections. gRPC 1.51 has none, and gives up a listener for good at the first
// accept4 that fails, for example where the process has no descriptor left: whoever opened enough
// idle connections would lock everybody out until a restart. So this program brings its own
// accept4.
#pragma once

#include <cstdint>

#include "server/log/log.h"

namespace rlk::server {

// Raises the soft limit on descriptors as far as `connections_max` needs and the hard limit allows.
// From then on a connection is closed as soon as it is accepted where its descriptor shows that
// about `connections_max` of them are open: the kernel hands out the lowest free number. Returns
// the bound in force, which is lower where the hard limit is. Call it when everything else that
// holds descriptors has started. For the whole process; the last call counts.
//
// `logger`, which may be null, gets a line for the first connection that is refused and then at
// most one in ten seconds, with the count so far. It is used until the next call of this function
// or of ForgetConnectionLog.
int64_t BoundConnections(int64_t connections_max, const Logger* logger = nullptr);

// Connections that this process has closed because of the bound.
int64_t ConnectionsRefused();

// Only if it is still this one that is used: another server of the process may have its own.
void ForgetConnectionLog(const Logger* logger);

}  // namespace rlk::server
