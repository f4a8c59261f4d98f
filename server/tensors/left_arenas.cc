#include "server/tensors/left_arenas.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/core/status.h"

namespace rlk::server {
namespace {

// So many sessions of one process may end with all their arenas mapped.
constexpr int64_t kSessionsLeft = 4;

absl::Status NoRoom(std::string value, std::string allowed) {
  constexpr int64_t kRetryMs = 1000;
  return MakeError(
      absl::StatusCode::kResourceExhausted,
      {Reason::kTensorsExhausted, "open_arena", std::move(value), std::move(allowed), kRetryMs},
      "sessions that have ended left too many arenas mapped");
}

}  // namespace

LeftArenas::LeftArenas(const Limits& limits)
    : arenas_max_(kSessionsLeft * limits.session_arenas_max), peers_max_(limits.sessions_max) {}

absl::Status LeftArenas::CheckRoom(const PeerRef& peer) const {
  const std::lock_guard lock(mutex_);
  if (const auto own = peers_.find(peer); own != peers_.end()) {
    const auto left = static_cast<int64_t>(own->second.size());
    if (left < arenas_max_) return absl::OkStatus();
    return NoRoom(std::to_string(left) + " arenas that the process left mapped",
                  "below " + std::to_string(arenas_max_) + " (" + std::to_string(kSessionsLeft) +
                      " * session_arenas_max)");
  }
  const int64_t others = std::count_if(peers_.begin(), peers_.end(), [&peer](const auto& entry) {
    return entry.first->uid() == peer->uid();
  });
  if (others < peers_max_) return absl::OkStatus();
  return NoRoom(std::to_string(others) + " processes of the user that left arenas mapped",
                "below " + std::to_string(peers_max_) + " (sessions_max)");
}

void LeftArenas::Add(const PeerRef& peer, ChargeRef charge) {
  const std::lock_guard lock(mutex_);
  peers_[peer].push_back(std::move(charge));
}

void LeftArenas::Sweep() {
  std::vector<PeerRef> peers;
  {
    const std::lock_guard lock(mutex_);
    peers.reserve(peers_.size());
    for (const auto& [peer, charges] : peers_) peers.push_back(peer);
  }
  std::erase_if(peers, [](const PeerRef& peer) { return peer->MayMap(); });
  std::vector<std::vector<ChargeRef>> gone;  // given back without the mutex
  const std::lock_guard lock(mutex_);
  for (const PeerRef& peer : peers) {
    const auto found = peers_.find(peer);
    if (found == peers_.end()) continue;
    gone.push_back(std::move(found->second));
    peers_.erase(found);
  }
}

}  // namespace rlk::server
