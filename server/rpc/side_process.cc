#include "server/rpc/side_process.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace rlk::server {

// A process's handle becomes readable when it ends.
bool SideProcess::MayMap() const {
  if (handle_.get() < 0) return false;
  pollfd ended = {handle_.get(), POLLIN, 0};
  return poll(&ended, 1, 0) == 0;
}

std::shared_ptr<const SideProcess> SideProcesses::Find(pid_t pid, uint32_t uid) {
  // While a process runs, its number is no other's.
  if (const auto found = known_.find({pid, uid}); found != known_.end()) {
    std::shared_ptr<const SideProcess> process = found->second.lock();
    if (process != nullptr && process->MayMap()) return process;
  }
  std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
  // 0 is a process of another PID namespace, which has no handle here; nor has one that has ended.
  const int handle = pid > 0 ? static_cast<int>(syscall(SYS_pidfd_open, pid, 0)) : -1;
  if (pid > 0 && handle < 0 && (errno == EMFILE || errno == ENFILE)) return nullptr;
  auto process = std::make_shared<const SideProcess>(OwnedFd(handle), uid);
  if (handle >= 0) known_[{pid, uid}] = process;
  return process;
}

}  // namespace rlk::server
