#include "server/engine/call_run.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/core/status.h"
#include "server/engine/host_memory.h"
#include "server/engine/resident_call.h"
#include "server/engine/verification.h"

namespace rlk::server {
namespace {

// Up to this size the copies of the outputs are enqueued right behind the kernel: a look at the
// deadline in between would cost more than it saves.
constexpr int64_t kEagerStageOutBytesMax = int64_t{1} << 20;

bool OnDevice(const std::shared_ptr<ResidentMemory>& memory) {
  return memory != nullptr && memory->device().kind != DeviceKind::kHost;
}

int64_t StagedBytes(int64_t bytes) { return AlignUp(bytes, kStageAlignment); }

std::byte* DataOf(const ResidentOutput& output) {
  std::byte* const base = output.memory()->data();
  return base == nullptr ? nullptr : base + output.offset();
}

}  // namespace

absl::Status CallRun::CheckCaller(CancelStage stage) {
  // Somebody else completed the job: its device was given up, and this run with it.
  if (job_->completed()) return DeviceLostError(device_.info(), "the device was given up");
  absl::Status status = job_->CheckCaller();
  if (!status.ok()) cancelled_at_ = stage;
  return status;
}

bool CallRun::Start() {
  if (absl::Status status = Prepare(); !status.ok()) {
    // Nothing was begun, so there is nothing to wait for.
    status_ = std::move(status);
    stage_ = Stage::kFinished;
    return true;
  }
  absl::Status status = StageInputs();
  if (status.ok()) status = Launch();
  stage_ = Stage::kKernel;
  const bool settles = repeats() && !job_->residents.empty();
  // The recorder chooses by an input's digest whether its bytes come to the host.
  const bool eager = device_.info().kind != DeviceKind::kHost && job_->recorder == nullptr &&
                     !settles && job_->checked.output_bytes <= kEagerStageOutBytesMax;
  if (status.ok() && eager) {
    status = CheckCaller(CancelStage::kStageOut);
    if (status.ok()) status = StageOutputs();
    stage_ = Stage::kCopies;
  }
  if (!status.ok()) {
    status_ = std::move(status);
    stage_ = Stage::kAborting;
  }
  return Advance();
}

bool CallRun::Advance() {
  while (stage_ != Stage::kFinished) {
    const absl::StatusOr<bool> done = lane_.Done();
    if (!done.ok()) {
      // Other work of the lane may still use the call's memory.
      if (device_.healthy()) (void)lane_.Wait();
      End(status_.ok() ? done.status() : status_);
      break;
    }
    if (!*done) return false;
    if (stage_ == Stage::kAborting) {
      End(status_);
      break;
    }
    if (stage_ == Stage::kCopies) {
      absl::Status status = Digests();
      End(status.ok() ? Conclude() : std::move(status));
      break;
    }
    absl::Status status = CheckCaller(CancelStage::kStageOut);
    if (status.ok()) status = Digests();
    if (status.ok()) status = StageOutputs();
    stage_ = Stage::kCopies;
    if (!status.ok()) {
      status_ = std::move(status);
      stage_ = Stage::kAborting;
    }
  }
  return true;
}

void CallRun::Finish() {
  while (!Advance()) {
    if (absl::Status status = lane_.Wait(); !status.ok()) {
      End(status_.ok() ? status : status_);
      return;
    }
  }
}

void CallRun::End(absl::Status status) {
  job_->launched_ns.store(0, std::memory_order_relaxed);
  status_ = std::move(status);
  // The lane of a lost device is never used again, and its memory may still be written.
  if (device_.healthy()) lane_.End();
  stage_ = Stage::kFinished;
}

absl::Status CallRun::Prepare() {
  RLK_RETURN_IF_ERROR(CheckCaller(CancelStage::kStageIn));
  const CheckedCall& checked = job_->checked;
  int64_t input_bytes = 0, largest_bytes = 0;
  for (const TensorArg& input : job_->call.inputs) {
    if (!UsedInPlace(input)) input_bytes += StagedBytes(input.data.size);
    const TensorView view{input.dtype, input.shape, input.strides, nullptr};
    largest_bytes = std::max(largest_bytes, view.bytes());
  }
  int64_t first_bytes = 0, second_bytes = 0;
  for (size_t i = 0; i < checked.outputs.size(); ++i) {
    const PlannedOutput& output = checked.outputs[i];
    if (!output.wanted()) continue;
    const int64_t bytes =
        StagedBytes(MutableTensorView{output.dtype, output.shape, nullptr}.bytes());
    // The first run of an output that stays on this device writes where it stays.
    const ResidentOutput* const resident = job_->resident(i);
    if (resident == nullptr || !LiesOn(*resident->memory(), device_.info())) first_bytes += bytes;
    second_bytes += bytes;
    largest_bytes = std::max(largest_bytes, bytes);
  }
  const auto begin = [&] {
    return lane_.Begin(input_bytes, first_bytes + (repeats() ? second_bytes : 0),
                       StagedBytes(job_->workspace_bytes), largest_bytes);
  };
  absl::Status status = begin();
  if (job_->sampled && status.code() == absl::StatusCode::kResourceExhausted) {
    // Nobody is refused because of a sample.
    job_->sampled = false;
    replay_skipped_ = true;
    status = begin();
  }
  return status;
}

bool CallRun::UsedInPlace(const TensorArg& input) const {
  return input.memory != nullptr && LiesOn(*input.memory, device_.info()) && !takes_copy(input);
}

// Somebody will look at the input's own bytes: the reference, row digests, the recorder.
bool CallRun::ReadOnHost(const TensorArg& input) const {
  const CallOptions& options = job_->call.options;
  return input.memory->device().kind == DeviceKind::kHost &&
         (options.verification == Verification::kReference || options.digest_rows ||
          job_->recorder != nullptr);
}

absl::Status CallRun::StageInputs() {
  const MethodSignature& signature = job_->method().signature;
  const bool on_host = device_.info().kind == DeviceKind::kHost;
  inputs_.reserve(job_->call.inputs.size());
  for (TensorArg& input : job_->call.inputs) {
    if (UsedInPlace(input)) {
      std::byte* const base = input.memory->data();
      inputs_.push_back({input.dtype, input.shape, input.strides,
                         base == nullptr ? nullptr : base + input.memory_offset});
      continue;
    }
    const TensorSpec& spec = signature.inputs[static_cast<size_t>(input.spec)];
    const int64_t alignment = std::max<int64_t>(spec.alignment, DTypeSize(input.dtype));
    // The host takes bytes where they lie: not where a client can still write them when a
    // snapshot was promised, and not where the contract needs more alignment than they have.
    const bool shared = takes_copy(input) && (on_host || ReadOnHost(input));
    const bool misaligned =
        on_host && alignment > DTypeSize(input.dtype) && InPlace(input.data, alignment) == nullptr;
    if (shared || misaligned) {
      RLK_ASSIGN_OR_RETURN(HostBytes copy, CopyBytes(input.data, alignment));
      input.data = std::move(copy);
      input.memory.reset();
    }
    RLK_ASSIGN_OR_RETURN(TensorView view, lane_.StageIn(input));
    inputs_.push_back(view);
  }
  return absl::OkStatus();
}

absl::Status CallRun::Launch() {
  const CheckedCall& checked = job_->checked;
  bool any = false;
  for (int run = 0; run < (repeats() ? 2 : 1); ++run) {
    std::vector<MutableTensorView>& outputs = outputs_.emplace_back(checked.outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      const PlannedOutput& planned = checked.outputs[i];
      if (!planned.wanted()) continue;
      const ResidentOutput* const resident = job_->resident(i);
      if (resident != nullptr && run == 0 && LiesOn(*resident->memory(), device_.info())) {
        outputs[i] = {planned.dtype, planned.shape, DataOf(*resident)};
      } else {
        RLK_ASSIGN_OR_RETURN(outputs[i], lane_.Output(planned.dtype, planned.shape));
        if (const auto fill = job_->call.output_fill; fill.has_value()) {
          RLK_RETURN_IF_ERROR(lane_.Fill(outputs[i], *fill));
        }
      }
      any = any || outputs[i].elements() > 0;
    }
  }
  // With no element to write there is nothing to launch.
  if (!any) return CheckCaller(CancelStage::kLaunch);
  RLK_RETURN_IF_ERROR(CheckCaller(CancelStage::kLaunch));
  for (const auto& resident : job_->residents) {
    if (resident != nullptr) resident->OnLaunch();
  }
  for (std::vector<MutableTensorView>& outputs : outputs_) {
    RLK_RETURN_IF_ERROR(CheckCaller(CancelStage::kLaunch));
    KernelArgs args = MakeKernelArgs(*job_, inputs_, outputs);
    args.workspace = lane_.Workspace(job_->workspace_bytes);
    // For the watchdog, which does not look at the host.
    if (device_.info().kind != DeviceKind::kHost) {
      job_->launched_ns.store(Nanoseconds(Clock::now().time_since_epoch()),
                              std::memory_order_release);
    }
    RLK_RETURN_IF_ERROR(lane_.Launch(*job_->selection.variant, args));
  }
  return job_->digests_tensors() ? PrepareDigests() : absl::OkStatus();
}

// Behind the kernels, so that nobody waits for each of them.
absl::Status CallRun::PrepareDigests() {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (job_->call.inputs[i].digest.has_value()) continue;
    RLK_RETURN_IF_ERROR(lane_.PrepareDigest(inputs_[i]));
  }
  for (const MutableTensorView& output : outputs_.front()) {
    if (output.present()) RLK_RETURN_IF_ERROR(lane_.PrepareDigest(output.view()));
  }
  return absl::OkStatus();
}

// Compares where they lie what would otherwise come to the host for nothing. Blocks.
absl::Status CallRun::SettleResidents() {
  if (!repeats() || outputs_.size() < 2) return absl::OkStatus();
  settled_.resize(outputs_.front().size());
  for (size_t i = 0; i < settled_.size(); ++i) {
    const ResidentOutput* const resident = job_->resident(i);
    if (resident == nullptr || !OnDevice(resident->memory())) continue;
    RLK_ASSIGN_OR_RETURN(const Digest first, lane_.ComputeDigest(outputs_[0][i].view()));
    RLK_ASSIGN_OR_RETURN(const Digest second, lane_.ComputeDigest(outputs_[1][i].view()));
    settled_[i] = first == second;
  }
  return absl::OkStatus();
}

absl::Status CallRun::StageOutputs() {
  RLK_RETURN_IF_ERROR(SettleResidents());
  for (size_t run = 0; run < outputs_.size(); ++run) {
    std::vector<OutputTensor>& tensors = run == 0 ? job_->result.outputs : second_;
    for (size_t i = 0; i < outputs_[run].size(); ++i) {
      const MutableTensorView& view = outputs_[run][i];
      if (!view.present()) continue;
      OutputTensor& tensor = tensors.emplace_back();
      tensor.spec = static_cast<int32_t>(i);
      tensor.dtype = view.dtype;
      tensor.shape = view.shape;
      ResidentOutput* const resident = run == 0 ? job_->resident(i) : nullptr;
      const bool compared = repeats() && !settled(i);
      if (run == 1 && !compared) continue;
      if (resident == nullptr) {
        RLK_ASSIGN_OR_RETURN(tensor.data, lane_.StageOut(view));
        continue;
      }
      const bool on_host = !OnDevice(resident->memory());
      if (on_host && !LiesOn(*resident->memory(), device_.info())) {
        RLK_RETURN_IF_ERROR(lane_.StageOutTo(view, DataOf(*resident)));
      }
      if (on_host || compared || needs_host_bytes(view.view())) {
        RLK_ASSIGN_OR_RETURN(tensor.data,
                             HostCopy(resident->memory(), DataOf(*resident), view.bytes()));
      }
    }
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    TensorArg& input = job_->call.inputs[i];
    if (!OnDevice(input.memory)) continue;
    // What the kernel read: the tensor as it lies, or the call's own copy of it.
    auto* const data = static_cast<std::byte*>(const_cast<void*>(inputs_[i].data));
    if (needs_host_bytes(inputs_[i])) {
      RLK_ASSIGN_OR_RETURN(input.data, HostCopy(input.memory, data, input.data.size));
    } else if (IsRecorded(i)) {
      // Where there is no room for the copy, the recording has the digest alone.
      absl::StatusOr<HostBytes> copy = HostCopy(input.memory, data, input.data.size);
      if (copy.ok()) input.data = *std::move(copy);
    }
  }
  return absl::OkStatus();
}

// The recorder wants the bytes of an input, whose digest is there by now.
bool CallRun::IsRecorded(size_t input) const {
  const std::vector<NamedDigest>& digests = job_->result.report.input_digests;
  return job_->recorder != nullptr && input < digests.size() && digests[input].tensor &&
         job_->recorder->WantsBytes(*digests[input].tensor, inputs_[input].bytes());
}

// The bytes of a resident tensor for what is done on the host; to be read after the copies.
absl::StatusOr<HostBytes> CallRun::HostCopy(const std::shared_ptr<ResidentMemory>& memory,
                                            std::byte* data, int64_t size) {
  if (memory->device().kind == DeviceKind::kHost || size == 0) {
    HostBytes bytes;
    bytes.size = size;
    bytes.owner = memory;
    if (size > 0) bytes.pieces.emplace_back(data, static_cast<size_t>(size));
    return bytes;
  }
  return lane_.StageOut({DType::kU8, Dims{size}, data});
}

// Once, when the kernels are done.
absl::Status CallRun::Digests() {
  if (!job_->digests_tensors() && !job_->call.options.digest_rows) return absl::OkStatus();
  if (std::exchange(digested_, true)) return absl::OkStatus();
  RLK_RETURN_IF_ERROR(InputDigests());
  return OutputDigests();
}

absl::Status CallRun::InputDigests() {
  CallReport& report = job_->result.report;
  const MethodSignature& signature = job_->method().signature;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const auto spec = static_cast<size_t>(job_->call.inputs[i].spec);
    NamedDigest& digest = report.input_digests.emplace_back();
    digest.name = signature.inputs[spec].name;
    if (signature.inputs[spec].repeated) {
      const int64_t index = static_cast<int64_t>(i) - job_->checked.input_begin[spec];
      digest.name.append("[").append(std::to_string(index)).append("]");
    }
    if (job_->digests_tensors() && job_->call.inputs[i].digest.has_value()) {
      digest.tensor = job_->call.inputs[i].digest;
    } else if (job_->digests_tensors()) {
      RLK_ASSIGN_OR_RETURN(digest.tensor, lane_.ComputeDigest(inputs_[i]));
    }
  }
  return absl::OkStatus();
}

absl::Status CallRun::OutputDigests() {
  const std::vector<MutableTensorView>& outputs = outputs_.front();
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].present()) continue;
    NamedDigest& digest = job_->result.report.output_digests.emplace_back();
    digest.name = job_->method().signature.outputs[i].name;
    if (job_->digests_tensors()) {
      RLK_ASSIGN_OR_RETURN(digest.tensor, lane_.ComputeDigest(outputs[i].view()));
    }
  }
  return absl::OkStatus();
}

// From host memory: the inputs' own bytes, and the outputs after their copies. Tensors that stay on
// a device that can look at them are digested there; what they came from is done.
absl::Status CallRun::RowDigests() {
  CallReport& report = job_->result.report;
  const auto rows = [](TensorView view, const HostBytes& bytes,
                       NamedDigest& digest) -> absl::Status {
    const Contiguous block = MakeContiguous(bytes, DTypeSize(view.dtype));
    if (block.data == nullptr && bytes.size > 0) return HostMemoryError(bytes.size);
    view.data = block.data;
    digest.rows = ComputeRowDigests(view);
    return absl::OkStatus();
  };
  const auto look = [this](const TensorView& view, NamedDigest& digest) -> absl::Status {
    RLK_ASSIGN_OR_RETURN(digest.rows, device_.inspector()->ComputeRowDigests(view));
    return absl::OkStatus();
  };
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const TensorArg& input = job_->call.inputs[i];
    NamedDigest& digest = report.input_digests[i];
    RLK_RETURN_IF_ERROR(OnDevice(input.memory) && !needs_host_bytes(inputs_[i])
                            ? look(inputs_[i], digest)
                            : rows(job_->checked.input_views[i], input.data, digest));
  }
  for (size_t i = 0; i < job_->result.outputs.size(); ++i) {
    const OutputTensor& output = job_->result.outputs[i];
    const auto spec = static_cast<size_t>(output.spec);
    const ResidentOutput* const resident = job_->resident(spec);
    const TensorView placed = outputs_.front()[spec].view();
    if (resident != nullptr && OnDevice(resident->memory()) && !needs_host_bytes(placed)) {
      RLK_RETURN_IF_ERROR(look(placed, report.output_digests[i]));
      continue;
    }
    const TensorView view{output.dtype, output.shape, ContiguousStrides(output.shape), nullptr};
    RLK_RETURN_IF_ERROR(rows(view, output.data, report.output_digests[i]));
  }
  return absl::OkStatus();
}

absl::Status CallRun::CompareRepeats() {
  const MethodSignature& signature = job_->method().signature;
  VerificationReport& report = repeat_.emplace();
  report.kind = Verification::kRepeat;
  report.passed = true;
  absl::Status status;
  std::vector<BitComparison> comparisons;
  for (size_t i = 0; i < second_.size(); ++i) {
    const OutputTensor& first = job_->result.outputs[i];
    const std::string& name = signature.outputs[static_cast<size_t>(first.spec)].name;
    BitComparison& comparison = comparisons.emplace_back();
    if (settled(static_cast<size_t>(first.spec))) {
      comparison.compared = ElementCount(first.shape);
    } else {
      comparison = CompareBits(first.dtype, first.data, second_[i].data);
    }
    OutputCheck& check = report.outputs.emplace_back();
    check.name = name;
    check.passed = comparison.mismatched == 0;
    check.compared = comparison.compared;
    check.mismatched = comparison.mismatched;
    report.passed = report.passed && check.passed;
    if (!check.passed && status.ok()) status = RepeatError(name, comparison);
  }
  if (!report.passed) DescribeMismatch(comparisons);
  return status;
}

// While the lane still has the tensors of the call. What cannot be digested is left out: the
// verdict stands without it.
void CallRun::DescribeMismatch(const std::vector<BitComparison>& comparisons) {
  const MethodSignature& signature = job_->method().signature;
  const CallReport& report = job_->result.report;
  const auto digest = [this](const TensorView& view) -> std::optional<Digest> {
    absl::StatusOr<Digest> computed = lane_.ComputeDigest(view);
    return computed.ok() ? std::optional<Digest>(*computed) : std::nullopt;
  };
  RepeatMismatch& mismatch = mismatch_.emplace();
  mismatch.method = job_->call.method;
  mismatch.sampled = job_->sampled;
  mismatch.contract = report.contract;
  mismatch.kernel = report.kernel;
  mismatch.backend = report.backend;
  mismatch.device = device_.info();
  mismatch.attributes = report.attributes;
  mismatch.trace_id = job_->call.trace_id;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const TensorArg& input = job_->call.inputs[i];
    const auto spec = static_cast<size_t>(input.spec);
    std::string name = signature.inputs[spec].name;
    if (signature.inputs[spec].repeated) {
      const int64_t index = static_cast<int64_t>(i) - job_->checked.input_begin[spec];
      name.append("[").append(std::to_string(index)).append("]");
    }
    mismatch.inputs.push_back({std::move(name), input.dtype, input.shape, input.strides,
                               input.source, digest(inputs_[i])});
  }
  for (size_t i = 0; i < comparisons.size(); ++i) {
    const OutputTensor& output = job_->result.outputs[i];
    const auto spec = static_cast<size_t>(output.spec);
    mismatch.outputs.push_back({signature.outputs[spec].name, output.dtype, output.shape,
                                digest(outputs_[0][spec].view()), digest(outputs_[1][spec].view()),
                                comparisons[i]});
  }
}

absl::Status CallRun::Conclude() {
  CallReport& report = job_->result.report;
  if (repeats()) {
    RLK_RETURN_IF_ERROR(CompareRepeats());
    if (!job_->sampled) report.verification = *repeat_;
  }
  if (job_->call.options.digest_rows) RLK_RETURN_IF_ERROR(RowDigests());
  const PhaseNanos phases = lane_.Phases();
  report.phases.stage_in = phases.stage_in;
  report.phases.kernel = phases.kernel;
  report.phases.stage_out = phases.stage_out;
  report.device = device_.info();
  return absl::OkStatus();
}

}  // namespace rlk::server
