#include "server/sessions/session_table.h"

#include <utility>
#include <vector>

#include "kernels/core/status.h"
#include "server/sessions/random_id.h"

namespace rlk::server {

SessionTable::SessionTable(const Limits& limits, std::function<void(const Session&)> on_end,
                           SessionClock::time_point (*now)())
    : limits_(limits), on_end_(std::move(on_end)), now_(now) {}

SessionTable::~SessionTable() {
  std::vector<std::shared_ptr<Session>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [token, session] : sessions_) all.push_back(session);
  }
  for (const auto& session : all) End(session);
}

absl::Status SessionTable::CheckLease(int64_t lease_ms) const {
  if (lease_ms >= 0 && lease_ms <= limits_.session_lease_ms_max) return absl::OkStatus();
  return InvalidArgument(
      Reason::kLimitExceeded, "lease_ms", std::to_string(lease_ms),
      "0 to " + std::to_string(limits_.session_lease_ms_max) + " (session_lease_ms_max)",
      "the lease is not allowed");
}

absl::StatusOr<std::shared_ptr<Session>> SessionTable::OpenLeased(int64_t lease_ms) {
  RLK_RETURN_IF_ERROR(CheckLease(lease_ms));
  return Open(lease_ms == 0 ? limits_.session_lease_ms : lease_ms, std::nullopt);
}

absl::StatusOr<std::shared_ptr<Session>> SessionTable::OpenHeld(uint32_t uid) {
  return Open(std::nullopt, uid);
}

absl::StatusOr<std::shared_ptr<Session>> SessionTable::Open(std::optional<int64_t> lease_ms,
                                                            std::optional<uint32_t> uid) {
  const std::lock_guard lock(mutex_);
  if (static_cast<int64_t>(sessions_.size()) >= limits_.sessions_max) {
    constexpr int64_t kRetryMs = 1000;
    return MakeError(absl::StatusCode::kResourceExhausted,
                     {Reason::kSessionsExhausted,
                      {},
                      std::to_string(sessions_.size()) + " sessions",
                      "at most " + std::to_string(limits_.sessions_max) + " (sessions_max)",
                      kRetryMs},
                     "too many sessions are open");
  }
  auto session = std::make_shared<Session>(next_id_++, HexText(RandomId()), lease_ms, uid, Now());
  sessions_.emplace(session->token(), session);
  return session;
}

absl::StatusOr<std::shared_ptr<Session>> SessionTable::Find(std::string_view token) {
  const SessionClock::time_point now = Now();
  {
    const std::lock_guard lock(mutex_);
    const auto found = sessions_.find(std::string(token));
    if (found != sessions_.end() && !found->second->Expired(now)) {
      found->second->Touch(now);
      return found->second;
    }
  }
  // Neither the token nor a part of it is repeated: it may be somebody's, mistyped.
  return MakeError(absl::StatusCode::kUnauthenticated,
                   {Reason::kUnauthenticated, "rlk-session", {}, "the token of an open session"},
                   "no session has this token, or its lease has ended");
}

absl::Status SessionTable::Renew(Session& session, int64_t lease_ms) {
  RLK_RETURN_IF_ERROR(CheckLease(lease_ms));
  if (!session.leased()) return absl::OkStatus();
  session.SetLease(lease_ms == 0 ? session.lease_ms() : lease_ms, Now());
  return absl::OkStatus();
}

void SessionTable::End(const std::shared_ptr<Session>& session) {
  {
    const std::lock_guard lock(mutex_);
    sessions_.erase(session->token());
  }
  if (session->End() && on_end_) on_end_(*session);
}

void SessionTable::Sweep() {
  const SessionClock::time_point now = Now();
  std::vector<std::shared_ptr<Session>> expired;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [token, session] : sessions_) {
      if (session->Expired(now)) expired.push_back(session);
    }
  }
  for (const auto& session : expired) End(session);
}

int64_t SessionTable::count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(sessions_.size());
}

}  // namespace rlk::server
