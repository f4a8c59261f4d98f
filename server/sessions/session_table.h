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
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/core/limits.h"
#include "server/sessions/session.h"

namespace rlk::server {

// Thread-safe.
class SessionTable {
 public:
  // `on_end` runs once for each session, after it has ended and on the thread that ended it. `now`
  // null takes the steady clock (tests move their own). Tokens begin with `server_id` and a dot, so
  // that every server knows those of others; with an empty one they do not.
  SessionTable(const Limits& limits, std::function<void(const Session&)> on_end,
               SessionClock::time_point (*now)() = nullptr, std::string server_id = {});
  // Ends all.
  ~SessionTable();

  // A session with a lease of `lease_ms` (0: session_lease_ms). INVALID_ARGUMENT (kLimitExceeded)
  // above session_lease_ms_max or below 0; RESOURCE_EXHAUSTED (kSessionsExhausted), also where
  // `account` (null: nobody's) has its sessions_max.
  absl::StatusOr<std::shared_ptr<Session>> OpenLeased(int64_t lease_ms,
                                                      std::shared_ptr<Account> account = nullptr);
  // A session that a connection of the side socket holds: its owner has to End it.
  absl::StatusOr<std::shared_ptr<Session>> OpenHeld(uint32_t uid);

  // Finds the session and touches its lease. UNAUTHENTICATED (kUnauthenticated), which does not say
  // whether the token was ever good, nor whether it is another account's; FAILED_PRECONDITION
  // (kWrongServer) for a token of another server.
  absl::StatusOr<std::shared_ptr<Session>> Find(std::string_view token,
                                                const Account* account = nullptr);

  // `lease_ms` 0 leaves it as it is. Errors as OpenLeased.
  absl::Status Renew(Session& session, int64_t lease_ms);

  void End(const std::shared_ptr<Session>& session);
  // Ends those whose lease has passed, or whose account was revoked.
  void Sweep();

  // Runs for every token that Find refuses. Set before the table is used.
  void SetOnUnknown(std::function<void()> on_unknown) { on_unknown_ = std::move(on_unknown); }

  int64_t count() const;

 private:
  absl::StatusOr<std::shared_ptr<Session>> Open(std::optional<int64_t> lease_ms,
                                                std::optional<uint32_t> uid,
                                                std::shared_ptr<Account> account);
  absl::Status CheckLease(int64_t lease_ms) const;
  SessionClock::time_point Now() const { return now_ == nullptr ? SessionClock::now() : now_(); }

  const Limits limits_;
  const std::function<void(const Session&)> on_end_;
  std::function<void()> on_unknown_;
  SessionClock::time_point (*const now_)();
  const std::string server_id_;
  mutable std::mutex mutex_;
  uint64_t next_id_ = 1;                                                // guarded by mutex_
  std::unordered_map<std::string, std::shared_ptr<Session>> sessions_;  // guarded by mutex_
  // Sessions by account id; an account without any is not there.
  std::unordered_map<uint64_t, int64_t> by_account_;  // guarded by mutex_
};

}  // namespace rlk::server
