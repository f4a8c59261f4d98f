#include "server/parity/concurrent_runs.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "kernels/core/status.h"
#include "server/parity/axis_run.h"
#include "server/parity/exception_status.h"

namespace rlk::server {
namespace {

bool SameOutputs(const MethodRun& a, const MethodRun& b) {
  return std::equal(a.outputs.begin(), a.outputs.end(), b.outputs.begin(), b.outputs.end(),
                    [](const ValueOutput& x, const ValueOutput& y) {
                      const int64_t bytes = x.tensor.bytes();
                      return x.spec == y.spec && x.tensor.dtype == y.tensor.dtype &&
                             x.tensor.shape == y.tensor.shape &&
                             (bytes == 0 || std::memcmp(x.tensor.data.get(), y.tensor.data.get(),
                                                        static_cast<size_t>(bytes)) == 0);
                    });
}

class Callers {
 public:
  Callers(CallRunner& runner, const std::vector<ValueCall>& calls, int64_t rounds,
          CheckContext& context)
      : runner_(runner), calls_(calls), rounds_(rounds), context_(context), runs_(calls.size()) {}

  void Start() {
    try {
      for (size_t i = 0; i < calls_.size(); ++i) {
        threads_.emplace_back([this, i] { Work(i); });
      }
    } catch (const std::system_error&) {
      Fail(MakeError(absl::StatusCode::kResourceExhausted,
                     {Reason::kBytesExhausted, "concurrency", {}, {}, 100},
                     "the host has no more threads"));
    } catch (...) {
      Fail(StatusOfException());
    }
    // Those that run must be joined, also where the next cannot be had.
    Open();
  }

  absl::StatusOr<std::vector<ConcurrentRun>> Join() {
    for (std::thread& thread : threads_) thread.join();
    if (!status_.ok()) return std::move(status_);
    std::vector<ConcurrentRun> all;
    for (std::vector<ConcurrentRun>& runs : runs_) {
      for (ConcurrentRun& run : runs) all.push_back(std::move(run));
    }
    return all;
  }

 private:
  // An exception that left the thread would end the process.
  void Work(size_t caller) {
    AwaitOpen();
    try {
      RunRounds(caller);
    } catch (...) {
      Fail(StatusOfException());
    }
  }

  void RunRounds(size_t caller) {
    std::vector<ConcurrentRun>& runs = runs_[caller];
    for (int64_t round = 0; round < rounds_ && !failed(); ++round) {
      absl::StatusOr<MethodRun> run =
          runner_.Run(calls_[caller], FillOfRun(static_cast<int64_t>(caller) + round), context_);
      if (!run.ok()) return Fail(std::move(run).status());
      if (!runs.empty() && SameOutputs(runs.front().run, *run)) {
        ++runs.front().repeated;
      } else {
        runs.push_back({static_cast<int64_t>(caller), round, *std::move(run), 0});
      }
    }
  }

  void AwaitOpen() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [this] { return open_; });
  }

  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }

  void Fail(absl::Status status) {
    const std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = std::move(status);
  }

  bool failed() {
    const std::lock_guard lock(mutex_);
    return !status_.ok();
  }

  CallRunner& runner_;
  const std::vector<ValueCall>& calls_;
  const int64_t rounds_;
  CheckContext& context_;
  std::vector<std::vector<ConcurrentRun>> runs_;  // by caller, each its thread's
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;    // guarded by mutex_
  absl::Status status_;  // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace

absl::StatusOr<std::vector<ConcurrentRun>> RunConcurrently(CallRunner& runner,
                                                           const std::vector<ValueCall>& calls,
                                                           int64_t rounds, CheckContext& context) {
  Callers callers(runner, calls, rounds, context);
  callers.Start();
  return callers.Join();
}

}  // namespace rlk::server
