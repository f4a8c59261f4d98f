// A few threads for what the side socket does not wait for: making memory and taking it away.
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace rlk::server {

// Gigabytes take seconds: others go on beside them. Who posts bounds what waits, one piece of work
// a connection and one for its end, and posts the latter when the former is done.
class SideWorker {
 public:
  static constexpr int kThreads = 4;

  SideWorker() {
    for (std::thread& thread : threads_) thread = std::thread([this] { Run(); });
  }
  ~SideWorker() { Finish(); }

  void Post(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    ready_.notify_one();
  }

  // Does what waits and ends the threads.
  void Finish() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    ready_.notify_all();
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ready_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      work();
      work = nullptr;
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> queue_;  // guarded by mutex_
  bool stopping_ = false;                    // guarded by mutex_
  std::array<std::thread, kThreads> threads_;
};

}  // namespace rlk::server
