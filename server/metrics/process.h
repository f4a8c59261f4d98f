// What the operating system knows of this process, under the names that client libraries of
// Prometheus share. Internal to this folder.
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

namespace rlk::server {

// process_cpu_seconds_total, process_resident_memory_bytes, process_open_fds, process_max_fds,
// process_start_time_seconds; what /proc does not tell is 0.
std::vector<prometheus::MetricFamily> CollectProcess();

}  // namespace rlk::server
