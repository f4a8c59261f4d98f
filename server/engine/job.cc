#include "server/engine/job.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/core/status.h"

namespace rlk::server {

bool Job::Complete(absl::StatusOr<CallResult>&& outcome) {
  if (completed_.exchange(true, std::memory_order_acq_rel)) return false;
  on_complete(*this, std::move(outcome));
  return true;
}

absl::Status Job::CheckCaller() const {
  if (call.cancelled != nullptr && call.cancelled->load(std::memory_order_acquire)) {
    return MakeError(absl::StatusCode::kCancelled, {Reason::kCancelled, "call", "cancelled", {}},
                     "the caller cancelled the call");
  }
  if (call.deadline == Clock::time_point::max()) return absl::OkStatus();
  const Clock::time_point at = now != nullptr ? now() : Clock::now();
  if (at >= call.deadline) {
    // Times since the arrival, in milliseconds.
    const auto since = [this](Clock::time_point time) {
      return std::to_string(Nanoseconds(std::max(time, call.received) - call.received) /
                            1'000'000) +
             " ms";
    };
    return MakeError(absl::StatusCode::kDeadlineExceeded,
                     {Reason::kDeadlineExceeded, "deadline", since(call.deadline),
                      "more than " + since(at) + ", which the call took so far"},
                     "the deadline passed before the call was done");
  }
  return absl::OkStatus();
}

KernelArgs MakeKernelArgs(const Job& job, std::span<const TensorView> inputs,
                          std::span<const MutableTensorView> outputs) {
  KernelArgs args;
  args.signature = &job.method().signature;
  if (job.selection.contract != nullptr) args.contract = job.selection.contract->id;
  args.inputs = inputs;
  args.input_begin = job.checked.input_begin;
  args.outputs = outputs;
  args.attributes = job.checked.attributes;
  return args;
}

std::vector<MutableTensorView> PlannedViews(const CheckedCall& checked) {
  std::vector<MutableTensorView> views;
  views.reserve(checked.outputs.size());
  for (const PlannedOutput& output : checked.outputs) {
    views.push_back({output.dtype, output.shape, nullptr});
  }
  return views;
}

absl::Status DeviceLostError(const DeviceInfo& device, std::string_view message) {
  return MakeError(absl::StatusCode::kUnavailable,
                   {Reason::kDeviceLost, "device", device.name.empty() ? device.uuid : device.name,
                    "a healthy device"},
                   message);
}

}  // namespace rlk::server
