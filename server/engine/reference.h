// The bounded CPU pool that compares results with the FP64 reference. It never runs on a device's
// executor: a slow reference must not hold up calls.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "server/engine/job.h"
#include "server/engine/observer.h"
#include "server/engine/tolerance.h"

namespace rlk::server {

class ReferencePool {
 public:
  // `tolerance` and `observer` are not owned; observer may be null.
  ReferencePool(int threads, int64_t calls_max, const ToleranceContract& tolerance,
                Observer* observer);
  // Finishes what was enqueued.
  ~ReferencePool();

  // Takes a place before the call runs on its device. RESOURCE_EXHAUSTED (kQueueFull) when
  // `calls_max` calls hold one.
  absl::Status Reserve();
  void Release();

  // Judges job->result and completes the job. A failing judgment is in the report; the call itself
  // succeeds.
  void Enqueue(std::shared_ptr<Job> job);

 private:
  void Stop();
  void Work();

  const int64_t calls_max_;
  const ToleranceContract& tolerance_;
  Observer* const observer_;
  std::mutex mutex_;
  std::condition_variable ready_;
  int64_t reserved_ = 0;
  bool stopping_ = false;
  std::deque<std::shared_ptr<Job>> queue_;
  std::vector<std::thread> threads_;
};

// Runs the golden on the job's own inputs and fills result.report.verification.
absl::Status JudgeByReference(Job& job, const ToleranceContract& tolerance);

}  // namespace rlk::server
