// A fixed pool of threads for host kernels. Work is split by index range only, so the bits of an
// elementwise or row kernel cannot depend on the number of threads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace rlk {

class ThreadPool {
 public:
  // `threads` counts the caller: 1 runs everything inline.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(begin, end) over disjoint ranges that cover [0, count), in blocks that are multiples
  // of `grain` (but the last); returns when all are done. One call at a time; others wait.
  void ParallelFor(int64_t count, int64_t grain,
                   const std::function<void(int64_t begin, int64_t end)>& body);

 private:
  void Stop();
  void Work();
  void RunBlocks();

  std::mutex call_mutex_;
  std::mutex mutex_;
  std::condition_variable start_, done_;
  uint64_t epoch_ = 0;
  int active_ = 0;
  bool stopping_ = false;
  const std::function<void(int64_t, int64_t)>* body_ = nullptr;
  int64_t count_ = 0, block_ = 0, next_ = 0;
  std::vector<std::thread> workers_;
};

}  // namespace rlk
