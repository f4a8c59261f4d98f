// One call on one lane, as steps that do not block: the executor's thread moves several of them
// forward in turn.
//
//   begin, stage in, launch -> (kernel done) digests, stage out -> (copies done) compare, end
//
// The caller's deadline and cancellation are looked at before staging in, before the launch and
// before staging out. Whatever was enqueued is waited for before the run finishes, failed runs
// included: the host bytes of the call and the lane's memory are in use until then.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "server/engine/device.h"
#include "server/engine/job.h"
#include "server/engine/observer.h"
#include "server/engine/repeat_mismatch.h"

namespace rlk::server {

class CallRun {
 public:
  // Neither the lane nor the device is owned; the job is shared.
  CallRun(const Device& device, Lane& lane, std::shared_ptr<Job> job)
      : device_(device), lane_(lane), job_(std::move(job)) {}

  // Begins, stages in and launches. True when the run is finished.
  bool Start();
  // Looks whether what was enqueued is done and goes on. True when the run is finished.
  bool Advance();
  // Blocks until the run is finished.
  void Finish();

  const std::shared_ptr<Job>& job() const { return job_; }
  // After the run finished. On success job()->result is whole, but for REFERENCE.
  const absl::Status& status() const { return status_; }
  // Where the caller was found to be gone.
  std::optional<CancelStage> cancelled_at() const { return cancelled_at_; }
  // The verdict of REPEAT, passed or not.
  const std::optional<VerificationReport>& repeat() const { return repeat_; }
  // Where REPEAT did not pass.
  const std::optional<RepeatMismatch>& mismatch() const { return mismatch_; }
  // A sampled call ran once: there was no room for its second outputs.
  bool replay_skipped() const { return replay_skipped_; }

 private:
  enum class Stage : uint8_t { kNew, kKernel, kCopies, kAborting, kFinished };

  // REFERENCE looks at tensors on the host; row digests are made there where the device makes none.
  bool needs_host_bytes(const TensorView& view) const {
    const CallOptions& options = job_->call.options;
    const bool on_device = device_.inspector() != nullptr && view.contiguous();
    return options.verification == Verification::kReference || (options.digest_rows && !on_device);
  }
  // The call computes on its own copy of an input that its caller can write.
  bool takes_copy(const TensorArg& input) const {
    return input.live && job_->result.report.input_capture == InputCapture::kSnapshot;
  }
  bool UsedInPlace(const TensorArg& input) const;
  bool ReadOnHost(const TensorArg& input) const;
  absl::StatusOr<HostBytes> HostCopy(const std::shared_ptr<ResidentMemory>& memory, std::byte* data,
                                     int64_t size);
  bool repeats() const { return job_->repeats(); }
  bool IsRecorded(size_t input) const;
  // Two runs of an output that stays on a GPU had one digest: its bytes need not come to the host.
  bool settled(size_t output) const { return output < settled_.size() && settled_[output]; }
  absl::Status CheckCaller(CancelStage stage);
  absl::Status Prepare();
  absl::Status StageInputs();
  absl::Status Launch();
  absl::Status StageOutputs();
  absl::Status PrepareDigests();
  absl::Status Digests();
  absl::Status InputDigests();
  absl::Status OutputDigests();
  absl::Status RowDigests();
  absl::Status SettleResidents();
  absl::Status CompareRepeats();
  void DescribeMismatch(const std::vector<BitComparison>& comparisons);
  // After the copies: comparisons, row digests, report.
  absl::Status Conclude();
  void End(absl::Status status);

  const Device& device_;
  Lane& lane_;
  std::shared_ptr<Job> job_;
  Stage stage_ = Stage::kNew;
  bool digested_ = false;
  absl::Status status_;
  std::optional<CancelStage> cancelled_at_;
  std::optional<VerificationReport> repeat_;
  std::optional<RepeatMismatch> mismatch_;
  bool replay_skipped_ = false;
  std::vector<bool> settled_;
  std::vector<TensorView> inputs_;
  // One set of outputs a run: two for REPEAT.
  std::vector<std::vector<MutableTensorView>> outputs_;
  std::vector<OutputTensor> second_;
};

}  // namespace rlk::server
