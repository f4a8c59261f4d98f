#include "server/engine/job.h"

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
    return MakeError(absl::StatusCode::kCancelled, {Reason::kCancelled, {}, {}, {}},
                     "the caller cancelled the call");
  }
  if (call.deadline == Clock::time_point::max()) return absl::OkStatus();
  if ((now != nullptr ? now() : Clock::now()) >= call.deadline) {
    return MakeError(absl::StatusCode::kDeadlineExceeded, {Reason::kDeadlineExceeded, {}, {}, {}},
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
                   {Reason::kDeviceLost, {}, device.name.empty() ? device.uuid : device.name, {}},
                   message);
}

}  // namespace rlk::server
