// The processes at the other ends of the side socket.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "server/engine/owned_fd.h"
#include "server/tensors/left_arenas.h"

namespace rlk::server {

class SideProcess final : public ArenaPeer {
 public:
  // Without a handle it is one that cannot be seen from here.
  SideProcess(OwnedFd handle, uint32_t uid) : handle_(std::move(handle)), uid_(uid) {}

  bool MayMap() const override;
  uint32_t uid() const override { return uid_; }

 private:
  const OwnedFd handle_;  // the kernel's: a pidfd
  const uint32_t uid_;
};

// One object, and one descriptor, for each process, however often it connects. Of one thread.
class SideProcesses {
 public:
  // Null where the server has no descriptor left for it.
  std::shared_ptr<const SideProcess> Find(pid_t pid, uint32_t uid);

 private:
  std::map<std::pair<pid_t, uint32_t>, std::weak_ptr<const SideProcess>> known_;
};

}  // namespace rlk::server
