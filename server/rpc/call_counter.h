// How many calls are between their arrival and the transport's last word on their reply, and how
// many bytes their replies hold. A caller that does not read, and does not acknowledge the limit on
// its streams either, would otherwise let us keep replies without end.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

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

  // Takes room for a small reply to anybody until ReleaseSmall: a sixteenth of `bytes_max` is
  // theirs without a look at who reads. False, and nothing taken, where that is used up; then Hold
  // decides.
  bool HoldSmall(int64_t bytes, int64_t bytes_max) {
    if (small_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes <= bytes_max / 16) {
      return true;
    }
    ReleaseSmall(bytes);
    return false;
  }

  void ReleaseSmall(int64_t bytes) { small_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }

  // Takes room for a reply to `peer` until Release. False, and nothing taken, where all replies
  // would hold more than `bytes_max`, or those of this connection more than a quarter of it. One
  // reply is always let through, whatever its size.
  bool Hold(const std::string& peer, int64_t bytes, int64_t bytes_max) {
    const std::lock_guard lock(mutex_);
    if (bytes_ > 0 && bytes > bytes_max - bytes_) return false;
    int64_t& held = by_peer_[peer];
    if (held > 0 && bytes > bytes_max / 4 - held) return false;
    held += bytes;
    bytes_ += bytes;
    return true;
  }

  void Release(const std::string& peer, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    bytes_ -= bytes;
    const auto found = by_peer_.find(peer);
    if ((found->second -= bytes) == 0) by_peer_.erase(found);
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
  std::atomic<int64_t> small_bytes_{0};
  int64_t bytes_ = 0;
  std::unordered_map<std::string, int64_t> by_peer_;
};

}  // namespace rlk::server
