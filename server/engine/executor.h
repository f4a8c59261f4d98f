// One device's queue, thread and lanes.
//
// The thread starts calls in the order of the queue, one on each free lane, and moves those in
// flight forward by polling, so that transfers of one call overlap with kernels of others. Without
// work it sleeps. Small calls of a host device run on the submitting thread when nothing waits.
//
// A device is lost by a sticky error, whatever met it, or by a launch over the watchdog limit. Then
// every call in flight or waiting gets UNAVAILABLE (kDeviceLost), and lanes, device and the memory
// of those calls are leaked: a dead context cannot be asked whether it still writes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "server/engine/admission.h"
#include "server/engine/call_run.h"
#include "server/engine/device.h"
#include "server/engine/job.h"
#include "server/engine/observer.h"
#include "server/engine/reference.h"
#include "server/engine/repeat_mismatch.h"

namespace rlk::server {

struct ExecutorOptions {
  Limits limits;
  int lanes = 4;
  int64_t watchdog_ms = 30'000;
  int64_t inline_run_bytes_max = int64_t{64} << 10;
  std::function<void(const RepeatMismatch&)> on_repeat_mismatch;
};

class Executor : public std::enable_shared_from_this<Executor> {
 public:
  // `observer` may be null; `reference` and observer are not owned. `on_lost` runs once, before
  // the calls of the lost device complete.
  Executor(std::unique_ptr<Device> device, const ExecutorOptions& options, Observer* observer,
           ReferencePool* reference, std::function<void(const Device&)> on_lost);
  // After Stop.
  ~Executor();

  // Makes the lanes, on the thread that will use them.
  absl::Status Start();

  // Finishes what was submitted and ends the threads. Only a thread that is stuck in a lost device
  // is left behind.
  void Stop();

  // OK: the job is or will be completed. Otherwise it was not taken: RESOURCE_EXHAUSTED of the
  // admission, or UNAVAILABLE (kDeviceLost).
  absl::Status Submit(const std::shared_ptr<Job>& job);

  // Completes what waits with UNAVAILABLE (kDraining).
  void RefuseWaiting();

  const Device& device() const { return *device_; }
  Device& device() { return *device_; }
  bool healthy() const { return !lost_.load(std::memory_order_acquire); }
  // Calls that wait or run.
  int64_t load() const { return load_.load(std::memory_order_relaxed); }

 private:
  struct Active {
    std::unique_ptr<CallRun> run;
    size_t lane = 0;
  };

  void Work(std::function<void(absl::Status)> started);
  void Loop();
  bool StartNext();
  bool PollActive();
  void WatchDevice();
  bool TryRunInline(const std::shared_ptr<Job>& job);
  void Retire(Active active);
  void Conclude(CallRun& run);
  void CountFault(const CallRun& run);
  void NotifyQueue();
  std::deque<std::shared_ptr<Job>> TakeQueue();
  void Lose(std::string_view why);
  template <typename Step>
  bool OnDevice(Step step);

  std::unique_ptr<Device> device_;
  const ExecutorOptions options_;
  Observer* const observer_;
  ReferencePool* const reference_;
  const std::function<void(const Device&)> on_lost_;

  std::mutex mutex_;
  std::condition_variable work_, stopped_, watchdog_;
  Admission admission_;                          // guarded by mutex_
  std::deque<std::shared_ptr<Job>> queue_;       // guarded by mutex_
  std::vector<std::shared_ptr<Job>> on_device_;  // guarded by mutex_; what a loss must complete
  bool stopping_ = false, exited_ = false;       // guarded by mutex_
  bool in_device_call_ = false;                  // guarded by mutex_
  std::atomic<bool> lost_{false};                // written under mutex_
  std::atomic<int64_t> waiting_{0}, load_{0};

  // Used by the executor's thread alone.
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<size_t> free_lanes_;
  std::vector<Active> active_;

  // For calls on submitting threads.
  struct InlineLane {
    std::mutex mutex;
    std::unique_ptr<Lane> lane;
  };
  std::vector<std::unique_ptr<InlineLane>> inline_lanes_;

  std::thread thread_, watchdog_thread_;
};

}  // namespace rlk::server
