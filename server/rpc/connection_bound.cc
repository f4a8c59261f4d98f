#include "server/rpc/connection_bound.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <mutex>
#include <optional>

namespace rlk::server {
namespace {

// Left for what is not a connection: scrapes of the metrics, files that are opened for a moment.
constexpr int64_t kReserve = 32;

// Descriptors of connections are below. Constant-initialised: accept4 may run before main.
std::atomic<int> descriptor_bound = INT_MAX;
std::atomic<int64_t> refused_connections = 0;

// Refusals come as fast as somebody connects: the log gets a line now and then.
constexpr std::chrono::seconds kLogInterval{10};
std::mutex log_mutex;
const Logger* refusal_log = nullptr;                          // guarded by log_mutex
std::optional<std::chrono::steady_clock::time_point> logged;  // guarded by log_mutex

void CountRefusal() {
  const int64_t refused = refused_connections.fetch_add(1, std::memory_order_relaxed) + 1;
  const std::lock_guard lock(log_mutex);
  if (refusal_log == nullptr) return;
  const auto now = std::chrono::steady_clock::now();
  if (logged && now - *logged < kLogInterval) return;
  logged = now;
  refusal_log->Warning("connections are refused: connections_max are open",
                       {{"refused_so_far", refused}});
}

// The number that the next descriptor gets.
int64_t NextDescriptor() {
  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) close(fd);
  return fd;
}

}  // namespace

int64_t BoundConnections(int64_t connections_max, const Logger* logger) {
  {
    const std::lock_guard lock(log_mutex);
    refusal_log = logger;
    logged.reset();
  }
  const int64_t in_use = std::max<int64_t>(NextDescriptor(), 0);
  const int64_t wanted = std::min<int64_t>(in_use + connections_max, INT_MAX - kReserve);
  rlimit limit = {};
  int64_t allowed = INT_MAX;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    const auto needed = static_cast<rlim_t>(wanted + kReserve);
    if (limit.rlim_cur < needed) {
      rlimit raised = limit;
      raised.rlim_cur = std::min(needed, limit.rlim_max);
      if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
    }
    allowed = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, INT_MAX));
  }
  // With very few descriptors one connection at least is tried.
  const int64_t bound = std::max(std::min(wanted, allowed - kReserve), in_use + 1);
  descriptor_bound.store(static_cast<int>(bound), std::memory_order_relaxed);
  return bound - in_use;
}

int64_t ConnectionsRefused() { return refused_connections.load(std::memory_order_relaxed); }

void ForgetConnectionLog(const Logger* logger) {
  const std::lock_guard lock(log_mutex);
  if (refusal_log == logger) refusal_log = nullptr;
}

}  // namespace rlk::server

// Takes the place of libc's for gRPC. Errors that pass (no descriptor, no memory, a peer that left)
// become EAGAIN, at which gRPC waits for the next connection and then takes all that wait.
extern "C" int accept4(int listener, sockaddr* address, socklen_t* length, int flags) {
  const socklen_t room = length != nullptr ? *length : 0;
  for (;;) {
    if (length != nullptr) *length = room;
    const auto fd = static_cast<int>(syscall(SYS_accept4, listener, address, length, flags));
    if (fd >= 0) {
      if (fd < rlk::server::descriptor_bound.load(std::memory_order_relaxed)) return fd;
      close(fd);
      rlk::server::CountRefusal();
      continue;
    }
    switch (errno) {
      case ECONNABORTED:
      case EPROTO:
      case EPERM:
        continue;
      case EMFILE:
      case ENFILE:
      case ENOBUFS:
      case ENOMEM:
        errno = EAGAIN;
        return -1;
      default:
        return -1;
    }
  }
}
