// What sessions leave behind that have ended: arenas that a process may still map.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "kernels/core/limits.h"
#include "server/tensors/budget.h"

namespace rlk::server {

// A process that arenas are given to. The same object for all its sessions. Thread-safe.
class ArenaPeer {
 public:
  virtual ~ArenaPeer() = default;
  // Whether it still runs. Called now and then, on any thread.
  virtual bool MayMap() const = 0;
  virtual uint32_t uid() const = 0;
};

// Thread-safe.
class LeftArenas {
 public:
  using PeerRef = std::shared_ptr<const ArenaPeer>;
  using ChargeRef = std::shared_ptr<const Budget::Charge>;

  explicit LeftArenas(const Limits& limits);

  // RESOURCE_EXHAUSTED (kTensorsExhausted) where the process has left as many arenas as it may, or
  // where as many other processes of its user have left some.
  absl::Status CheckRoom(const PeerRef& peer) const;
  // Stays charged while the peer may map it.
  void Add(const PeerRef& peer, ChargeRef charge);
  // Looks at each process once.
  void Sweep();

 private:
  const int64_t arenas_max_, peers_max_;
  mutable std::mutex mutex_;
  std::unordered_map<PeerRef, std::vector<ChargeRef>> peers_;  // guarded by mutex_
};

}  // namespace rlk::server
