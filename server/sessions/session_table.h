// All sessions of the server, by token.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "kernels/core/limits.h"
#include "server/sessions/session.h"

namespace rlk::server {

// Thread-safe.
class SessionTable {
 public:
  // `on_end` runs once for each session, after it has ended and on the thread that ended it. `now`
  // null takes the steady clock (tests move their own).
  SessionTable(const Limits& limits, std::function<void(const Session&)> on_end,
               SessionClock::time_point (*now)() = nullptr);
  // Ends all.
  ~SessionTable();

  // A session with a lease of `lease_ms` (0: session_lease_ms). INVALID_ARGUMENT (kLimitExceeded)
  // above session_lease_ms_max or below 0; RESOURCE_EXHAUSTED (kSessionsExhausted).
  absl::StatusOr<std::shared_ptr<Session>> OpenLeased(int64_t lease_ms);
  // A session that a connection of the side socket holds: its owner has to End it.
  absl::StatusOr<std::shared_ptr<Session>> OpenHeld(uint32_t uid);

  // Finds the session and touches its lease. UNAUTHENTICATED (kUnauthenticated), which does not say
  // whether the token was ever good.
  absl::StatusOr<std::shared_ptr<Session>> Find(std::string_view token);

  // `lease_ms` 0 leaves it as it is. Errors as OpenLeased.
  absl::Status Renew(Session& session, int64_t lease_ms);

  void End(const std::shared_ptr<Session>& session);
  // Ends those whose lease has passed.
  void Sweep();

  int64_t count() const;

 private:
  absl::StatusOr<std::shared_ptr<Session>> Open(std::optional<int64_t> lease_ms,
                                                std::optional<uint32_t> uid);
  absl::Status CheckLease(int64_t lease_ms) const;
  SessionClock::time_point Now() const { return now_ == nullptr ? SessionClock::now() : now_(); }

  const Limits limits_;
  const std::function<void(const Session&)> on_end_;
  SessionClock::time_point (*const now_)();
  mutable std::mutex mutex_;
  uint64_t next_id_ = 1;                                                // guarded by mutex_
  std::unordered_map<std::string, std::shared_ptr<Session>> sessions_;  // guarded by mutex_
};

}  // namespace rlk::server
