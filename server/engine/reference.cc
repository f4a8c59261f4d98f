#include "server/engine/reference.h"

#include <algorithm>
#include <limits>
#include <new>
#include <string>
#include <utility>

#include "kernels/core/fp_environment.h"
#include "kernels/core/parallel.h"
#include "kernels/core/status.h"
#include "server/engine/host_memory.h"
#include "server/engine/verification.h"

namespace rlk::server {
namespace {

absl::Status OutOfMemory() {
  return MakeError(absl::StatusCode::kResourceExhausted,
                   {Reason::kBytesExhausted, "options.verification", {}, {}, 100},
                   "the host has no memory for the reference");
}

}  // namespace

absl::Status JudgeByReference(Job& job, const ToleranceContract& tolerance) {
  const FpEnvironment environment;
  const Method& method = job.method();
  std::vector<TensorView> inputs = job.checked.input_views;
  std::vector<Contiguous> held;
  held.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const HostBytes& bytes = job.call.inputs[i].data;
    held.push_back(MakeContiguous(bytes, DTypeSize(inputs[i].dtype)));
    if (held.back().data == nullptr && bytes.size > 0) return OutOfMemory();
    inputs[i].data = held.back().data;
  }
  std::vector<MutableTensorView> outputs = PlannedViews(job.checked);
  std::vector<std::unique_ptr<double[]>> gold(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].present()) continue;
    const auto count = static_cast<size_t>(std::max<int64_t>(outputs[i].elements(), 1));
    gold[i].reset(new (std::nothrow) double[count]);
    if (gold[i] == nullptr) return OutOfMemory();
    // A golden that leaves an element out must not pass by what lay there.
    std::fill_n(gold[i].get(), count, std::numeric_limits<double>::signaling_NaN());
    outputs[i].dtype = DType::kF64;
    outputs[i].data = gold[i].get();
  }
  KernelArgs args = MakeKernelArgs(job, inputs, outputs);
  ThreadPool one_thread(1);
  args.pool = &one_thread;
  if (absl::Status status = method.decl.golden(args); !status.ok()) {
    return MakeError(absl::StatusCode::kFailedPrecondition,
                     {Reason::kVerificationUnavailable, "options.verification", "REFERENCE", {}},
                     "the FP64 reference refused the call: " + std::string(status.message()));
  }

  VerificationReport report{.kind = Verification::kReference, .passed = true, .outputs = {}};
  for (const OutputTensor& output : job.result.outputs) {
    const auto spec = static_cast<size_t>(output.spec);
    RLK_ASSIGN_OR_RETURN(const Tolerance row,
                         OutputTolerance(tolerance, method.signature, output.dtype));
    const Contiguous values = MakeContiguous(output.data, 1);
    if (values.data == nullptr && output.data.size > 0) return OutOfMemory();
    const std::span<const double> reference(gold[spec].get(),
                                            static_cast<size_t>(outputs[spec].elements()));
    report.outputs.push_back(
        CompareWithReference(method.signature.outputs[spec].name, output.dtype,
                             {values.data, static_cast<size_t>(output.data.size)}, reference, row));
    report.passed = report.passed && report.outputs.back().passed;
  }
  job.result.report.verification = std::move(report);
  return absl::OkStatus();
}

ReferencePool::ReferencePool(int threads, int64_t calls_max, const ToleranceContract& tolerance,
                             Observer* observer)
    : calls_max_(calls_max), tolerance_(tolerance), observer_(observer) {
  // Threads that run must be joined before they are destroyed, also where the next cannot be had.
  try {
    for (int i = 0; i < std::max(threads, 1); ++i) threads_.emplace_back([this] { Work(); });
  } catch (...) {
    Stop();
    throw;
  }
}

ReferencePool::~ReferencePool() { Stop(); }

void ReferencePool::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  ready_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

absl::Status ReferencePool::Reserve() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (reserved_ >= calls_max_) {
    return MakeError(
        absl::StatusCode::kResourceExhausted,
        {Reason::kQueueFull, "options.verification", std::to_string(reserved_) + " calls",
         "at most " + std::to_string(calls_max_) + " (reference_calls_max)", 100},
        "too many calls are being verified by REFERENCE");
  }
  ++reserved_;
  return absl::OkStatus();
}

void ReferencePool::Release() {
  std::lock_guard<std::mutex> lock(mutex_);
  --reserved_;
}

void ReferencePool::Enqueue(std::shared_ptr<Job> job) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(job));
  }
  ready_.notify_one();
}

void ReferencePool::Work() {
  for (;;) {
    std::shared_ptr<Job> job;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      ready_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      job = std::move(queue_.front());
      queue_.pop_front();
    }
    absl::Status status = job->CheckCaller();
    if (!status.ok()) {
      // The kernel's work is done; what is saved is the rest.
      if (observer_ != nullptr) observer_->OnCancelled(CancelStage::kStageOut);
    } else {
      status = JudgeByReference(*job, tolerance_);
    }
    if (!status.ok()) {
      job->Complete(std::move(status));
      continue;
    }
    if (observer_ != nullptr) {
      observer_->OnVerification(job->method(), job->result.report.verification);
    }
    job->Complete(std::move(job->result));
  }
}

}  // namespace rlk::server
