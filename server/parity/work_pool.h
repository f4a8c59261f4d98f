// Threads for work that takes its time: comparisons, digests, whole checks. Bounded in threads and
// in what waits, so that no number of callers can take the host.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "server/parity/interrupt.h"

namespace rlk::server {

class WorkPool {
 public:
  // At most `waiting_max` pieces of work wait beside those that run; `what` names them in errors.
  WorkPool(int threads, int64_t waiting_max, std::string what);
  // Finishes what waits.
  ~WorkPool();
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // RESOURCE_EXHAUSTED (kQueueFull) with RetryInfo where too much waits; `work` is then not run.
  // Otherwise it runs once, with the verdict of `interrupt` when its turn comes.
  absl::Status Submit(Interrupt interrupt,
                      std::function<void(const Interrupt&, absl::Status)> work);

 private:
  struct Item {
    Interrupt interrupt;
    std::function<void(const Interrupt&, absl::Status)> work;
  };
  void Stop();
  void Work();

  const int64_t waiting_max_;
  const std::string what_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Item> queue_;  // guarded by mutex_
  bool stopping_ = false;   // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace rlk::server
