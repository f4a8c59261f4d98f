#include "kernels/core/parallel.h"

#include <algorithm>

namespace rlk {

ThreadPool::ThreadPool(int threads) {
  // Threads that run must be joined before they are destroyed, also where the next cannot be had.
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { Work(); });
  } catch (...) {
    Stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { Stop(); }

void ThreadPool::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  start_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::ParallelFor(int64_t count, int64_t grain,
                             const std::function<void(int64_t begin, int64_t end)>& body) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  if (workers_.empty() || count <= grain) {
    body(0, count);
    return;
  }
  std::lock_guard<std::mutex> call(call_mutex_);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    // About four blocks a thread, so that a slow thread does not hold up the rest.
    const int64_t grains = (count - 1) / grain + 1;
    block_ = std::max<int64_t>(grains / (4 * threads()), 1) * grain;
    body_ = &body;
    count_ = count;
    next_ = 0;
    active_ = static_cast<int>(workers_.size());
    ++epoch_;
  }
  start_.notify_all();
  RunBlocks();
  // Workers are waited for even when they found nothing to do: `body` dies with this call.
  std::unique_lock<std::mutex> lock(mutex_);
  done_.wait(lock, [this] { return active_ == 0; });
  body_ = nullptr;
}

void ThreadPool::Work() {
  uint64_t seen = 0;
  for (;;) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      start_.wait(lock, [&] { return stopping_ || epoch_ != seen; });
      if (epoch_ == seen) return;
      seen = epoch_;
    }
    RunBlocks();
    std::lock_guard<std::mutex> lock(mutex_);
    if (--active_ == 0) done_.notify_one();
  }
}

void ThreadPool::RunBlocks() {
  for (;;) {
    int64_t begin, end;
    const std::function<void(int64_t, int64_t)>* body;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (next_ >= count_) return;
      begin = next_;
      end = block_ < count_ - begin ? begin + block_ : count_;
      next_ = end;
      body = body_;
    }
    (*body)(begin, end);
  }
}

}  // namespace rlk
