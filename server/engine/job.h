// A checked and selected call on its way through an executor.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/registry/call.h"
#include "kernels/registry/selector.h"
#include "server/engine/contract_check.h"
#include "server/engine/observer.h"
#include "server/engine/recorder.h"
#include "server/engine/residents.h"

namespace rlk::server {

using Clock = std::chrono::steady_clock;

inline int64_t Nanoseconds(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

// Shared by the executor that runs it and by the watchdog that may give it up. Whoever completes it
// first wins; `done` runs once.
struct Job {
  Call call;
  CheckedCall checked;
  Selection selection;
  int64_t workspace_bytes = 0;
  // Of inputs that were copied before the call waits.
  int64_t copied_bytes = 0;
  // By output spec index; null where the output is not kept. Empty where none is.
  std::vector<std::unique_ptr<ResidentOutput>> residents;
  Clock::time_point submitted;
  // Into the queue; not set where the call does not wait.
  Clock::time_point admitted;
  CallResult result;
  // Set by the engine; runs on the thread that completes the job.
  std::function<void(Job&, absl::StatusOr<CallResult>&&)> on_complete;
  // What the caller of the engine waits for; the engine's to call.
  std::function<void(absl::StatusOr<CallResult>&&)> done;
  // The clock of deadlines.
  Clock::time_point (*now)() = nullptr;
  // Run twice by the server's own choice. The caller is told nothing of it unless bits differ.
  bool sampled = false;
  // Takes the call down; null for none.
  CallRecorder* recorder = nullptr;
  // Holds a place in the reference pool.
  bool holds_reference = false;
  // steady_clock nanoseconds of the launch, 0 before it: what the watchdog reads.
  std::atomic<int64_t> launched_ns{0};

  ResidentOutput* resident(size_t output) const {
    return residents.empty() ? nullptr : residents[output].get();
  }

  const Method& method() const { return *call.method; }
  bool digests_tensors() const { return recorder != nullptr || call.options.digest_tensors; }
  bool repeats() const { return sampled || call.options.verification == Verification::kRepeat; }
  // What waits in the queue with the call: not what stays on the server anyway.
  int64_t queued_bytes() const { return checked.inline_bytes + copied_bytes; }

  // False when somebody else has completed the job. Calls on_complete otherwise.
  bool Complete(absl::StatusOr<CallResult>&& outcome);
  bool completed() const { return completed_.load(std::memory_order_acquire); }

  // CANCELLED (kCancelled) or DEADLINE_EXCEEDED (kDeadlineExceeded) when nobody waits any more.
  absl::Status CheckCaller() const;

 private:
  std::atomic<bool> completed_{false};
};

// Kernel arguments over the job's own vectors; data pointers of `inputs` and `outputs` are as
// given. Everything referenced must outlive the arguments.
KernelArgs MakeKernelArgs(const Job& job, std::span<const TensorView> inputs,
                          std::span<const MutableTensorView> outputs);

// Header-only outputs of the plan, for selection and validation.
std::vector<MutableTensorView> PlannedViews(const CheckedCall& checked);

// UNAVAILABLE (kDeviceLost).
absl::Status DeviceLostError(const DeviceInfo& device, std::string_view message);

}  // namespace rlk::server
