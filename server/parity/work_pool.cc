#include "server/parity/work_pool.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/core/status.h"

namespace rlk::server {

absl::Status Interrupt::Check() const {
  // First: at the end of the server callers seem to have gone.
  if (ending != nullptr && *ending) {
    return MakeError(absl::StatusCode::kUnavailable, {Reason::kDraining, {}, {}, {}},
                     "the server shut down before the work was done");
  }
  if (cancelled && cancelled()) {
    return MakeError(absl::StatusCode::kCancelled, {Reason::kCancelled, {}, {}, {}},
                     "the caller has gone");
  }
  if (std::chrono::steady_clock::now() < deadline) return absl::OkStatus();
  return MakeError(absl::StatusCode::kDeadlineExceeded, {Reason::kDeadlineExceeded, {}, {}, {}},
                   "the deadline passed");
}

WorkPool::WorkPool(int threads, int64_t waiting_max, std::string what)
    : waiting_max_(waiting_max), what_(std::move(what)) {
  // Threads that run must be joined before they are destroyed, also where the next cannot be had.
  try {
    for (int i = 0; i < std::max(threads, 1); ++i) threads_.emplace_back([this] { Work(); });
  } catch (...) {
    Stop();
    throw;
  }
}

WorkPool::~WorkPool() { Stop(); }

void WorkPool::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ready_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

absl::Status WorkPool::Submit(Interrupt interrupt,
                              std::function<void(const Interrupt&, absl::Status)> work) {
  constexpr int64_t kRetryMs = 1000;
  {
    const std::lock_guard lock(mutex_);
    if (static_cast<int64_t>(queue_.size()) >= waiting_max_) {
      return MakeError(absl::StatusCode::kResourceExhausted,
                       {Reason::kQueueFull, what_, std::to_string(queue_.size()) + " that wait",
                        "at most " + std::to_string(waiting_max_), kRetryMs},
                       "too many " + what_ + " wait for a thread");
    }
    queue_.push_back({std::move(interrupt), std::move(work)});
  }
  ready_.notify_one();
  return absl::OkStatus();
}

void WorkPool::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ready_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Item item = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    item.work(item.interrupt, item.interrupt.Check());
    item = {};
    lock.lock();
  }
}

}  // namespace rlk::server
