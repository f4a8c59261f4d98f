// A session: the principal that most calls have. It has a token that is its secret, a lease, and
// what must stop when it ends.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "kernels/registry/call.h"
#include "server/sessions/account.h"

namespace rlk::server {

using SessionClock = std::chrono::steady_clock;

class Session final : public Principal {
 public:
  // Without a lease the session lives until it is ended: a connection holds it. `uid` is that of a
  // peer on the side socket; `account` whose session it is, null where the server asks nobody.
  Session(uint64_t id, std::string token, std::optional<int64_t> lease_ms,
          std::optional<uint32_t> uid, SessionClock::time_point now,
          std::shared_ptr<Account> account = nullptr);

  const std::string& token() const { return token_; }
  std::optional<uint32_t> uid() const { return uid_; }
  const std::shared_ptr<Account>& account() const { return account_; }
  Share share() const override { return account_ == nullptr ? Share{} : account_->share(); }
  bool leased() const { return leased_; }
  int64_t lease_ms() const { return lease_ms_.load(std::memory_order_relaxed); }
  bool ended() const override { return ended_.load(std::memory_order_acquire); }

  // The session is in use: its lease starts again.
  void Touch(SessionClock::time_point now);
  void SetLease(int64_t lease_ms, SessionClock::time_point now);
  bool Expired(SessionClock::time_point now) const;

  // Work for the session goes on: its lease does not pass meanwhile, and starts again at the end,
  // unless the caller has gone.
  void BeginWork() { works_.fetch_add(1, std::memory_order_relaxed); }
  void EndWork(bool caller_gone, SessionClock::time_point now);

  // Counts a call. False, and nothing counted, where `calls_max` are in flight.
  bool EnterCall(int64_t calls_max);
  void LeaveCall() { calls_.fetch_sub(1, std::memory_order_relaxed); }

  // Runs `stop` when the session ends, at once if it has ended; the number takes it back. It may
  // still run while Forget does, so it holds what it needs.
  uint64_t AtEnd(std::function<void()> stop);
  void Forget(uint64_t number);

  // Once; false for the second time.
  bool End();

 private:
  const std::string token_;
  const std::optional<uint32_t> uid_;
  const bool leased_;
  const std::shared_ptr<Account> account_;
  std::atomic<int64_t> lease_ms_;
  std::atomic<int64_t> deadline_ns_;
  std::atomic<int64_t> calls_{0}, works_{0};
  std::atomic<bool> ended_{false};
  std::mutex mutex_;
  uint64_t next_stop_ = 1;                           // guarded by mutex_
  std::map<uint64_t, std::function<void()>> stops_;  // guarded by mutex_
};

}  // namespace rlk::server
