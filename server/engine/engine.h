// From contract check to launch, without gRPC, protobuf or Prometheus.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/core/limits.h"
#include "kernels/registry/call.h"
#include "kernels/registry/registry.h"
#include "server/engine/device.h"
#include "server/engine/observer.h"
#include "server/engine/recorder.h"
#include "server/engine/repeat_mismatch.h"
#include "server/engine/residents.h"
#include "server/engine/tolerance.h"

namespace rlk::server {

struct EngineOptions {
  Limits limits;
  // Lanes per device.
  int lanes = 4;
  // Threads of the bounded pool for REFERENCE verification.
  int reference_threads = 1;
  // Calls that may wait for, or be in, REFERENCE verification.
  int64_t reference_calls_max = 64;
  // A kernel that runs longer takes its device out of rotation. Does not apply to the host device.
  int64_t watchdog_ms = 30'000;
  // Inputs and outputs of a call that may run on the submitting thread (host device).
  int64_t inline_run_bytes_max = int64_t{64} << 10;
  // One of so many calls that succeed until their launch is run twice and its bits are compared;
  // 0 for none. Calls of this process itself are not among them.
  int64_t replay_every = 0;
  // Told of two runs with different bits, asked for or sampled, before the call completes; on the
  // thread that ran it. Null for nobody.
  std::function<void(const RepeatMismatch&)> on_repeat_mismatch;
  // Is shown every call, but for those of this process itself. Not owned; null for none.
  CallRecorder* recorder = nullptr;
  // Outputs are filled with this byte before the launch when poisoning is on (tests).
  bool poison_outputs = false;
  // Refuses calls whose inline tensors, or whose reply's tensors and row digests, are above
  // limits.inline_bytes_max, before anything is launched.
  bool refuse_large_replies = true;
  // The clock of deadlines; null takes the steady clock (tests move their own).
  std::chrono::steady_clock::time_point (*now)() = nullptr;
};

class Executor;

class Engine {
 public:
  // Takes the outcome by reference: a result is large, and most callers only read it.
  using Done = std::function<void(absl::StatusOr<CallResult>&&)>;

  // `registry` is bound. `devices` holds the host device and one device per GPU. Neither
  // `registry`, `observer` nor `resolver` is owned; observer and resolver may be null. Without a
  // resolver tensors travel inline alone (kSourceNotSupported, kPlacementUnavailable).
  Engine(const Registry& registry, EngineOptions options, ToleranceContract tolerance,
         std::vector<std::unique_ptr<Device>> devices, Observer* observer,
         TensorResolver* resolver);
  // Drains.
  ~Engine();

  // Starts the executors. Errors are those of the devices.
  absl::Status Start();

  // Checks, admits and executes; `done` is called exactly once, from any thread, possibly before
  // Submit returns.
  void Submit(Call call, Done done);

  // New calls get UNAVAILABLE (kDraining), but for those of this process (Call::in_process), which
  // belong to a check that is under way; returns when those in flight are done (their `done` has
  // returned) or at the deadline (false). Not to be called from `done`.
  bool Drain(std::chrono::steady_clock::time_point deadline);

  // Calls that wait for a device get UNAVAILABLE (kDraining); those that run go on.
  void RefuseWaiting();

  // Started, not draining, and each kind of device that was there at the start still has a healthy
  // one: a GPU server whose last GPU is lost does not go on quietly on its CPU.
  bool serving() const;

  // Called once, from an executor or watchdog thread, when the last healthy device of a kind is
  // lost. Set before Start.
  void set_on_device_lost(std::function<void(const DeviceInfo&)> callback);

  std::vector<const Device*> devices() const;
  const Registry& registry() const { return registry_; }
  const EngineOptions& options() const { return options_; }
  const ToleranceContract& tolerance() const { return tolerance_; }

 private:
  struct Impl;
  const Registry& registry_;
  EngineOptions options_;
  ToleranceContract tolerance_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rlk::server
