// How many calls are between their arrival and the transport's last word on their reply.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace rlk::server {

class CallCounter {
 public:
  void Enter() {
    const std::lock_guard lock(mutex_);
    ++calls_;
  }

  void Leave() {
    const std::lock_guard lock(mutex_);
    if (--calls_ == 0) idle_.notify_all();
  }

  // False at the deadline.
  bool WaitIdle(std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    return idle_.wait_until(lock, deadline, [&] { return calls_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable idle_;
  int64_t calls_ = 0;
};

}  // namespace rlk::server
