#include "server/metrics/process.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>

namespace rlk::server {
namespace {

std::string Read(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

double ResidentBytes() {
  std::istringstream text(Read("/proc/self/statm"));
  double size = 0, resident = 0;
  text >> size >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double OpenDescriptors() {
  DIR* const directory = opendir("/proc/self/fd");
  if (directory == nullptr) return 0;
  int count = 0;
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  // Less "." and ".." and the directory's own.
  return count - 3;
}

double DescriptorsMax() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<double>(limit.rlim_cur);
}

// Seconds of the Unix epoch.
double StartTime() {
  // Field 22 is the start in clock ticks after the boot; the program's name, which may have
  // blanks, ends with the last parenthesis.
  const std::string stat = Read("/proc/self/stat");
  std::istringstream fields(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  double ticks = 0;
  fields >> ticks;
  const std::string system = Read("/proc/stat");
  const size_t at = system.find("\nbtime ");
  if (ticks == 0 || at == std::string::npos) return 0;
  return std::stod(system.substr(at + 7)) + ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

prometheus::MetricFamily Single(const char* name, const char* help, prometheus::MetricType type,
                                double value) {
  prometheus::ClientMetric metric;
  (type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  return {name, help, type, {std::move(metric)}};
}

}  // namespace

std::vector<prometheus::MetricFamily> CollectProcess() {
  static const double start_time = StartTime();
  using prometheus::MetricType;
  return {Single("process_cpu_seconds_total", "User and system time of the process.",
                 MetricType::Counter, CpuSeconds()),
          Single("process_resident_memory_bytes", "Memory of the process that is in RAM.",
                 MetricType::Gauge, ResidentBytes()),
          Single("process_open_fds", "Open descriptors.", MetricType::Gauge, OpenDescriptors()),
          Single("process_max_fds", "Descriptors that may be open.", MetricType::Gauge,
                 DescriptorsMax()),
          Single("process_start_time_seconds", "Start of the process, as Unix time.",
                 MetricType::Gauge, start_time)};
}

}  // namespace rlk::server
