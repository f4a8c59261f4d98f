// The bound on open connections. gRPC 1.51 has none, and gives up a listener for good at the first
// accept4 that fails, for example where the process has no descriptor left: whoever opened enough
// idle connections would lock everybody out until a restart. So this program brings its own
// accept4.
#pragma once

#include <cstdint>

namespace rlk::server {

// Raises the soft limit on descriptors as far as `connections_max` needs and the hard limit allows.
// From then on a connection is closed as soon as it is accepted where its descriptor shows that
// about `connections_max` of them are open: the kernel hands out the lowest free number. Returns
// the bound in force, which is lower where the hard limit is. Call it when everything else that
// holds descriptors has started. For the whole process; the last call counts.
int64_t BoundConnections(int64_t connections_max);

}  // namespace rlk::server
