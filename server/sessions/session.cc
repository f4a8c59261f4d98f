#include "server/sessions/session.h"

#include <utility>

namespace rlk::server {
namespace {

int64_t DeadlineNs(SessionClock::time_point now, int64_t lease_ms) {
  const auto deadline = now.time_since_epoch() + std::chrono::milliseconds(lease_ms);
  return std::chrono::duration_cast<std::chrono::nanoseconds>(deadline).count();
}

}  // namespace

Session::Session(uint64_t id, std::string token, std::optional<int64_t> lease_ms,
                 std::optional<uint32_t> uid, SessionClock::time_point now,
                 std::shared_ptr<Account> account)
    : Principal(id),
      token_(std::move(token)),
      uid_(uid),
      leased_(lease_ms.has_value()),
      account_(std::move(account)),
      lease_ms_(lease_ms.value_or(0)),
      deadline_ns_(DeadlineNs(now, lease_ms.value_or(0))) {}

void Session::Touch(SessionClock::time_point now) {
  if (!leased_) return;
  const int64_t deadline = DeadlineNs(now, lease_ms());
  // Never backwards: two calls may come here in either order.
  int64_t present = deadline_ns_.load(std::memory_order_relaxed);
  while (present < deadline &&
         !deadline_ns_.compare_exchange_weak(present, deadline, std::memory_order_relaxed)) {
  }
}

void Session::SetLease(int64_t lease_ms, SessionClock::time_point now) {
  lease_ms_.store(lease_ms, std::memory_order_relaxed);
  deadline_ns_.store(DeadlineNs(now, lease_ms), std::memory_order_relaxed);
}

bool Session::Expired(SessionClock::time_point now) const {
  // In this order: who sees no work sees the lease that started at its end.
  if (!leased_ || works_.load(std::memory_order_acquire) > 0) return false;
  return DeadlineNs(now, 0) >= deadline_ns_.load(std::memory_order_relaxed);
}

void Session::EndWork(bool caller_gone, SessionClock::time_point now) {
  if (!caller_gone) Touch(now);
  works_.fetch_sub(1, std::memory_order_release);
}

bool Session::EnterCall(int64_t calls_max) {
  if (calls_.fetch_add(1, std::memory_order_relaxed) < calls_max) return true;
  LeaveCall();
  return false;
}

uint64_t Session::AtEnd(std::function<void()> stop) {
  {
    const std::lock_guard lock(mutex_);
    if (!ended()) {
      stops_.emplace(next_stop_, std::move(stop));
      return next_stop_++;
    }
  }
  stop();
  return 0;
}

void Session::Forget(uint64_t number) {
  const std::lock_guard lock(mutex_);
  stops_.erase(number);
}

bool Session::End() {
  std::map<uint64_t, std::function<void()>> stops;
  {
    const std::lock_guard lock(mutex_);
    if (ended_.exchange(true, std::memory_order_acq_rel)) return false;
    stops.swap(stops_);
  }
  for (const auto& [number, stop] : stops) stop();
  return true;
}

}  // namespace rlk::server
