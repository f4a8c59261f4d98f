// Threads of calls that take their time, by what they do.
#pragma once

#include "server/parity/work_pool.h"

namespace rlk::server {

struct Pools {
  // Comparisons read memory at its speed: more threads would only take turns.
  WorkPool checks{2, 32, "checks"};
  // Files. One thread reads a disk as fast as several.
  WorkPool loads{1, 16, "loads"};
};

}  // namespace rlk::server
