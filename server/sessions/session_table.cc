#include "server/sessions/session_table.h"

#include <utility>
#include <vector>

#include "kernels/core/status.h"
#include "server/sessions/random_id.h"

namespace rlk::server {
namespace {

absl::Status Exhausted(int64_t open, int64_t max, const char* limit, const char* what) {
  constexpr int64_t kRetryMs = 1000;
  return MakeError(absl::StatusCode::kResourceExhausted,
                   {Reason::kSessionsExhausted, limit, std::to_string(open) + " sessions",
                    "at most " + std::to_string(max) + " (" + limit + ")", kRetryMs},
                   what);
}

// The id of the server in a token; empty where it has none.
std::string_view ServerOf(std::string_view token) {
  constexpr size_t kIdDigits = 32;
  if (token.size() != 2 * kIdDigits + 1 || token[kIdDigits] != '.') return {};
  const std::string_view id = token.substr(0, kIdDigits);
  return id.find_first_not_of("0123456789abcdef") == std::string_view::npos ? id
                                                                            : std::string_view();
}

}  // namespace

SessionTable::SessionTable(const Limits& limits, std::function<void(const Session&)> on_end,
                           SessionClock::time_point (*now)(), std::string server_id)
    : limits_(limits), on_end_(std::move(on_end)), now_(now), server_id_(std::move(server_id)) {}

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

absl::StatusOr<std::shared_ptr<Session>> SessionTable::OpenLeased(
    int64_t lease_ms, std::shared_ptr<Account> account) {
  RLK_RETURN_IF_ERROR(CheckLease(lease_ms));
  return Open(lease_ms == 0 ? limits_.session_lease_ms : lease_ms, std::nullopt,
              std::move(account));
}

absl::StatusOr<std::shared_ptr<Session>> SessionTable::OpenHeld(uint32_t uid) {
  return Open(std::nullopt, uid, nullptr);
}

absl::StatusOr<std::shared_ptr<Session>> SessionTable::Open(std::optional<int64_t> lease_ms,
                                                            std::optional<uint32_t> uid,
                                                            std::shared_ptr<Account> account) {
  const std::lock_guard lock(mutex_);
  const auto count = static_cast<int64_t>(sessions_.size());
  if (count >= limits_.sessions_max) {
    return Exhausted(count, limits_.sessions_max, "sessions_max", "too many sessions are open");
  }
  if (account != nullptr) {
    const auto found = by_account_.find(account->id());
    const int64_t own = found == by_account_.end() ? 0 : found->second;
    if (own >= account->sessions_max()) {
      return Exhausted(own, account->sessions_max(), "account_sessions_max",
                       "the account has too many sessions");
    }
    ++by_account_[account->id()];
  }
  auto session = std::make_shared<Session>(
      next_id_++, (server_id_.empty() ? "" : server_id_ + ".") + HexText(RandomId()), lease_ms, uid,
      Now(), std::move(account));
  sessions_.emplace(session->token(), session);
  return session;
}

absl::StatusOr<std::shared_ptr<Session>> SessionTable::Find(std::string_view token,
                                                            const Account* account) {
  const SessionClock::time_point now = Now();
  {
    const std::lock_guard lock(mutex_);
    const auto found = sessions_.find(std::string(token));
    if (found != sessions_.end() && !found->second->Expired(now) &&
        found->second->account().get() == account) {
      found->second->Touch(now);
      return found->second;
    }
  }
  if (const std::string_view theirs = ServerOf(token); !theirs.empty() && theirs != server_id_) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition,
        {Reason::kWrongServer, "rlk-session", "a session of server " + std::string(theirs),
         "a session of this server, " + server_id_},
        "the session is another server's, and so are its tensors");
  }
  if (on_unknown_) on_unknown_();
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
    if (sessions_.erase(session->token()) > 0 && session->account() != nullptr) {
      const auto found = by_account_.find(session->account()->id());
      if (--found->second == 0) by_account_.erase(found);
    }
  }
  if (session->End() && on_end_) on_end_(*session);
}

void SessionTable::Sweep() {
  const SessionClock::time_point now = Now();
  std::vector<std::shared_ptr<Session>> expired;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [token, session] : sessions_) {
      const bool revoked = session->account() != nullptr && session->account()->revoked();
      if (revoked || session->Expired(now)) expired.push_back(session);
    }
  }
  for (const auto& session : expired) End(session);
}

int64_t SessionTable::count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(sessions_.size());
}

}  // namespace rlk::server
