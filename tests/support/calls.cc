#include "tests/support/calls.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace rlk::test {

HostBytes CopyToPieces(const void* data, size_t size, int pieces, bool misaligned) {
  HostBytes bytes;
  bytes.size = static_cast<int64_t>(size);
  auto blocks = std::make_shared<std::vector<std::unique_ptr<std::byte[]>>>();
  const size_t offset = misaligned ? 1 : 0;
  size_t done = 0;
  for (int i = 0; i < pieces; ++i) {
    const size_t end = size * static_cast<size_t>(i + 1) / static_cast<size_t>(pieces);
    const size_t count = end - done;
    auto& block = blocks->emplace_back(new std::byte[count + offset]);
    if (count > 0) std::memcpy(block.get() + offset, static_cast<const char*>(data) + done, count);
    bytes.pieces.emplace_back(block.get() + offset, count);
    done = end;
  }
  bytes.owner = std::move(blocks);
  return bytes;
}

TensorArg ZeroTensor(int32_t spec, DType dtype, const Dims& shape) {
  const auto size = static_cast<size_t>(ByteCount(shape, dtype));
  return Tensor(spec, dtype, shape, std::vector<std::byte>(size));
}

std::vector<std::byte> OutputBytes(const CallResult& result, const std::string& name) {
  for (const OutputTensor& output : result.outputs) {
    if (result.method->signature.outputs[static_cast<size_t>(output.spec)].name != name) continue;
    std::vector<std::byte> bytes;
    for (const auto& piece : output.data.pieces) {
      bytes.insert(bytes.end(), piece.begin(), piece.end());
    }
    return bytes;
  }
  std::abort();
}

server::Engine::Done Pending::Callback() const {
  return [state = state_](absl::StatusOr<CallResult> outcome) {
    std::lock_guard<std::mutex> lock(state->mutex);
    if (state->done) std::abort();
    state->done = true;
    state->outcome = std::move(outcome);
    state->changed.notify_all();
  };
}

const absl::StatusOr<CallResult>& Pending::Wait() const {
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->changed.wait(lock, [this] { return state_->done; });
  return state_->outcome;
}

absl::StatusOr<CallResult> Pending::Take() {
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->changed.wait(lock, [this] { return state_->done; });
  return std::move(state_->outcome);
}

bool Pending::done() const {
  std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->done;
}

Pending Submit(server::Engine& engine, Call call) {
  Pending pending;
  engine.Submit(std::move(call), pending.Callback());
  return pending;
}

absl::StatusOr<CallResult> Execute(server::Engine& engine, Call call) {
  return Submit(engine, std::move(call)).Take();
}

void CountingObserver::OnCallDone(const Method*, const absl::Status& status,
                                  const CallReport* report, int64_t, int64_t, int64_t) {
  if (status.ok() != (report != nullptr)) std::abort();
  ++calls;
  if (!status.ok()) ++failures;
}

void CountingObserver::OnQueue(const DeviceInfo&, int64_t calls_now, int64_t bytes_now) {
  if (calls_now < 0 || bytes_now < 0) std::abort();
  queue_calls = calls_now;
  queue_bytes = bytes_now;
  queue_calls_max = std::max<int64_t>(queue_calls_max, calls_now);
}

void CountingObserver::OnRejected(Reason reason) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++rejected_[reason];
}

void CountingObserver::OnCancelled(server::CancelStage stage) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++cancelled_[stage];
}

void CountingObserver::OnDeviceError(const DeviceInfo&, bool sticky) {
  if (sticky) ++device_errors;
}

void CountingObserver::OnVerification(const Method&, const VerificationReport& report) {
  ++verified;
  if (!report.passed) ++verify_failed;
}

int64_t CountingObserver::rejected(Reason reason) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = rejected_.find(reason);
  return found == rejected_.end() ? 0 : found->second;
}

int64_t CountingObserver::cancelled(server::CancelStage stage) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = cancelled_.find(stage);
  return found == cancelled_.end() ? 0 : found->second;
}

}  // namespace rlk::test
