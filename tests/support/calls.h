// Calls from plain values, and what became of them.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/registry/call.h"
#include "server/engine/engine.h"
#include "server/engine/observer.h"

namespace rlk::test {

// An owned copy of `size` bytes in `pieces` pieces. With `misaligned` each piece starts one byte
// off the alignment of its block.
HostBytes CopyToPieces(const void* data, size_t size, int pieces = 1, bool misaligned = false);

template <typename T>
HostBytes ToBytes(const std::vector<T>& values, int pieces = 1, bool misaligned = false) {
  return CopyToPieces(values.data(), values.size() * sizeof(T), pieces, misaligned);
}

// A tensor in C order with the right number of zero bytes.
TensorArg ZeroTensor(int32_t spec, DType dtype, const Dims& shape);

template <typename T>
TensorArg Tensor(int32_t spec, DType dtype, const Dims& shape, const std::vector<T>& values,
                 int pieces = 1) {
  TensorArg tensor;
  tensor.spec = spec;
  tensor.dtype = dtype;
  tensor.shape = shape;
  tensor.strides = ContiguousStrides(shape);
  tensor.data = ToBytes(values, pieces);
  return tensor;
}

// The values of an output of the result, in C order. Aborts where the output is absent.
std::vector<std::byte> OutputBytes(const CallResult& result, const std::string& name);

template <typename T>
std::vector<T> OutputValues(const CallResult& result, const std::string& name) {
  const std::vector<std::byte> bytes = OutputBytes(result, name);
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// A submitted call. Aborts when `done` runs twice.
class Pending {
 public:
  Pending() : state_(std::make_shared<State>()) {}

  server::Engine::Done Callback() const;
  // Blocks.
  const absl::StatusOr<CallResult>& Wait() const;
  // Blocks and moves the outcome out. Copies of one absl::Status on two threads share a count that
  // TSan cannot see in the distribution's library.
  absl::StatusOr<CallResult> Take();
  bool done() const;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    absl::StatusOr<CallResult> outcome = absl::UnknownError("not done");
  };
  std::shared_ptr<State> state_;
};

Pending Submit(server::Engine& engine, Call call);
absl::StatusOr<CallResult> Execute(server::Engine& engine, Call call);

// Counts what the engine tells.
class CountingObserver : public server::Observer {
 public:
  void OnCallDone(const Method*, const absl::Status& status, const CallReport* report, int64_t,
                  int64_t, int64_t) override;
  void OnQueue(const DeviceInfo&, int64_t calls, int64_t bytes) override;
  void OnInFlight(int64_t delta) override { in_flight += delta; }
  void OnRejected(Reason reason) override;
  void OnCancelled(server::CancelStage stage) override;
  void OnDeviceError(const DeviceInfo&, bool sticky) override;
  void OnVerification(const Method&, const VerificationReport& report) override;
  void OnReplay(bool same_bits) override {
    ++replays;
    if (!same_bits) ++replay_mismatches;
  }
  void OnReplaySkipped(server::ReplaySkip why) override {
    ++replays_skipped[static_cast<size_t>(why)];
  }

  int64_t rejected(Reason reason) const;
  int64_t cancelled(server::CancelStage stage) const;

  std::atomic<int64_t> calls{0}, failures{0}, in_flight{0}, queue_calls{0}, queue_bytes{0};
  std::atomic<int64_t> replays{0}, replay_mismatches{0};
  std::array<std::atomic<int64_t>, server::kReplaySkipCount> replays_skipped = {};
  std::atomic<int64_t> queue_calls_max{0}, device_errors{0}, verified{0}, verify_failed{0};

 private:
  mutable std::mutex mutex_;
  std::map<Reason, int64_t> rejected_;
  std::map<server::CancelStage, int64_t> cancelled_;
};

}  // namespace rlk::test
