#include "server/engine/engine.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "kernels/core/status.h"
#include "kernels/registry/selector.h"
#include "server/engine/checked_values.h"
#include "server/engine/contract_check.h"
#include "server/engine/executor.h"
#include "server/engine/host_memory.h"
#include "server/engine/job.h"
#include "server/engine/reference.h"
#include "server/engine/replay_sampler.h"
#include "server/engine/resident_call.h"
#include "server/engine/verification.h"

namespace rlk::server {
namespace {

int64_t ResponseBytes(const CallResult& result) {
  int64_t bytes = 0;
  for (const OutputTensor& output : result.outputs) bytes += output.data.size;
  return bytes;
}

std::vector<std::string> Transports(const Job& job) {
  constexpr std::string_view kNames[kTensorPlaceCount] = {"inline", "resident", "host_arena",
                                                          "device_arena"};
  bool used[kTensorPlaceCount] = {};
  for (const TensorArg& input : job.call.inputs) used[static_cast<size_t>(input.place)] = true;
  for (size_t i = 0; i < job.checked.outputs.size(); ++i) {
    if (!job.checked.outputs[i].wanted()) continue;
    const ResidentOutput* const resident = job.resident(i);
    used[resident == nullptr ? 0 : static_cast<size_t>(resident->place())] = true;
  }
  std::vector<std::string> transports;
  for (size_t i = 0; i < kTensorPlaceCount; ++i) {
    if (used[i]) transports.emplace_back(kNames[i]);
  }
  return transports;
}

// What the caller cannot write any more is always a snapshot, and so is what goes to a GPU from the
// host: kernels see the copy. LIVE, when it is asked for, allows zero-copy and does not demand it,
// so SNAPSHOT (which promises more) is reported. Else arenas that the caller writes are LIVE,
// unless SNAPSHOT is asked for or something needs it.
InputCapture Capture(const Job& job, const DeviceInfo& device) {
  const Call& call = job.call;
  const CallOptions& options = call.options;
  const bool forced = options.input_capture == InputCapture::kSnapshot || job.digests_tensors() ||
                      options.digest_rows || options.verification != Verification::kNone;
  if (forced) return InputCapture::kSnapshot;
  const bool live = std::any_of(
      call.inputs.begin(), call.inputs.end(),
      [&device](const TensorArg& input) { return input.live && LiesOn(*input.memory, device); });
  return live ? InputCapture::kLive : InputCapture::kSnapshot;
}

// Of a call that was recorded: its caller is told what it asked for.
void HideDigests(const CallOptions& options, CallReport& report) {
  if (options.digest_tensors) return;
  for (std::vector<NamedDigest>* digests : {&report.input_digests, &report.output_digests}) {
    if (!options.digest_rows) digests->clear();
    for (NamedDigest& digest : *digests) digest.tensor.reset();
  }
}

// The value that the contract chose, where the call left it the choice.
void ResolveAttribute(const Method& method, const KernelArgs& args,
                      std::vector<AttributeValue>& attributes) {
  if (method.decl.resolve == nullptr) return;
  const int64_t value = method.decl.resolve(args);
  for (size_t i = 0; i < attributes.size(); ++i) {
    if (method.signature.attributes[i].name != method.decl.resolved_attribute) continue;
    attributes[i].integer = value;
  }
}

}  // namespace

struct Engine::Impl {
  Impl(Engine& engine_in, Observer* observer_in, TensorResolver* resolver_in)
      : engine(engine_in),
        observer(observer_in),
        resolver(resolver_in),
        sampler(engine.options_.replay_every),
        reference(engine.options_.reference_threads, engine.options_.reference_calls_max,
                  engine.tolerance_, observer_in) {}

  void Submit(Call call, Done done);
  absl::Status Enter(bool in_process);
  void Leave();
  absl::Status Prepare(Job& job, Executor*& executor) const;
  absl::StatusOr<Executor*> PinnedDevice(const CallOptions& options) const;
  absl::StatusOr<Executor*> PickDevice(DeviceKind kind) const;
  absl::StatusOr<Executor*> FindDevice(const std::string& uuid, std::string_view field) const;
  ContractCheckOptions CheckOptions(const Call& call) const;
  absl::StatusOr<Executor*> Choose(Job& job) const;
  void BeginReport(Job& job, const DeviceInfo& device) const;
  void Sample(Job& job);
  absl::Status RefuseAfterLoss(const CallOptions& options) const;
  Executor* Healthy(DeviceKind kind) const;
  void OnLost(const Device& device);
  void Complete(Job& job, absl::StatusOr<CallResult>&& outcome);

  Engine& engine;
  Observer* const observer;
  TensorResolver* const resolver;
  std::function<void(const DeviceInfo&)> on_device_lost;
  std::vector<std::shared_ptr<Executor>> executors;
  ReplaySampler sampler;

  std::mutex mutex;
  std::condition_variable idle;
  int64_t in_flight = 0;  // guarded by mutex
  bool draining = false;  // guarded by mutex
  bool started = false;   // guarded by mutex
  // A kind of device that was there has no healthy one left.
  std::atomic<bool> lost_kind{false};
  std::atomic<bool> accepting{false};

  // Last, so that its threads end before what they use.
  ReferencePool reference;
};

Engine::Engine(const Registry& registry, EngineOptions options, ToleranceContract tolerance,
               std::vector<std::unique_ptr<Device>> devices, Observer* observer,
               TensorResolver* resolver)
    : registry_(registry), options_(std::move(options)), tolerance_(std::move(tolerance)) {
  impl_ = std::make_unique<Impl>(*this, observer, resolver);
  ExecutorOptions executor;
  executor.limits = options_.limits;
  executor.lanes = options_.lanes;
  executor.watchdog_ms = options_.watchdog_ms;
  executor.inline_run_bytes_max = options_.inline_run_bytes_max;
  executor.on_repeat_mismatch = options_.on_repeat_mismatch;
  for (std::unique_ptr<Device>& device : devices) {
    impl_->executors.push_back(std::make_shared<Executor>(
        std::move(device), executor, observer, &impl_->reference,
        [impl = impl_.get()](const Device& lost) { impl->OnLost(lost); }));
  }
}

Engine::~Engine() {
  Drain(std::chrono::steady_clock::time_point::max());
  for (const auto& executor : impl_->executors) executor->Stop();
}

absl::Status Engine::Start() {
  for (const auto& executor : impl_->executors) RLK_RETURN_IF_ERROR(executor->Start());
  std::lock_guard<std::mutex> lock(impl_->mutex);
  impl_->started = true;
  impl_->accepting.store(!impl_->draining, std::memory_order_release);
  return absl::OkStatus();
}

void Engine::Submit(Call call, Done done) { impl_->Submit(std::move(call), std::move(done)); }

bool Engine::Drain(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock<std::mutex> lock(impl_->mutex);
  impl_->draining = true;
  impl_->accepting.store(false, std::memory_order_release);
  const auto idle = [this] { return impl_->in_flight == 0; };
  // A wait until the end of time overflows in some clocks.
  if (deadline == std::chrono::steady_clock::time_point::max()) {
    impl_->idle.wait(lock, idle);
    return true;
  }
  return impl_->idle.wait_until(lock, deadline, idle);
}

void Engine::RefuseWaiting() {
  for (const auto& executor : impl_->executors) executor->RefuseWaiting();
}

bool Engine::serving() const {
  return impl_->accepting.load(std::memory_order_acquire) &&
         !impl_->lost_kind.load(std::memory_order_acquire);
}

void Engine::set_on_device_lost(std::function<void(const DeviceInfo&)> callback) {
  impl_->on_device_lost = std::move(callback);
}

std::vector<const Device*> Engine::devices() const {
  std::vector<const Device*> devices;
  for (const auto& executor : impl_->executors) devices.push_back(&executor->device());
  return devices;
}

absl::Status Engine::Impl::Enter(bool in_process) {
  std::lock_guard<std::mutex> lock(mutex);
  if ((draining && !in_process) || !started) {
    return MakeError(absl::StatusCode::kUnavailable,
                     {Reason::kDraining, "server", draining ? "draining" : "starting", "serving"},
                     draining ? "the server is shutting down" : "the engine has not started");
  }
  ++in_flight;
  return absl::OkStatus();
}

void Engine::Impl::Leave() {
  // Notified under the lock: the one that waits may destroy this as soon as it sees the count.
  std::lock_guard<std::mutex> lock(mutex);
  if (--in_flight == 0) idle.notify_all();
}

void Engine::Impl::Submit(Call call, Done done) {
  const Clock::time_point now = Clock::now();
  if (call.received == Clock::time_point()) call.received = now;
  if (absl::Status status = Enter(call.in_process); !status.ok()) {
    // Without a place in the count nothing may be touched once `done` has run.
    if (observer != nullptr) {
      observer->OnRejected(Reason::kDraining);
      observer->OnCallDone(call.method, status, nullptr, call.message_bytes, 0,
                           Nanoseconds(Clock::now() - call.received));
    }
    done(std::move(status));
    return;
  }
  if (observer != nullptr) observer->OnInFlight(1);
  const auto job = std::make_shared<Job>();
  job->call = std::move(call);
  job->submitted = now;
  job->now = engine.options_.now;
  job->done = std::move(done);
  if (!job->call.in_process && job->call.method != nullptr)
    job->recorder = engine.options_.recorder;
  job->on_complete = [this](Job& ended, absl::StatusOr<CallResult>&& outcome) {
    Complete(ended, std::move(outcome));
  };
  const bool reference_asked = job->call.options.verification == Verification::kReference;
  Executor* executor = nullptr;
  absl::Status status = job->CheckCaller();
  const bool gone = !status.ok();
  if (!gone) status = Prepare(*job, executor);
  if (status.ok() && reference_asked) {
    status = reference.Reserve();
    job->holds_reference = status.ok();
  }
  if (status.ok() && !job->call.in_process && sampler.Next()) Sample(*job);
  if (status.ok()) status = executor->Submit(job);
  if (status.ok()) return;
  if (observer != nullptr) {
    if (gone) {
      observer->OnCancelled(CancelStage::kQueue);
    } else {
      const std::optional<ErrorDetail> detail = GetErrorDetail(status);
      observer->OnRejected(detail ? detail->reason : Reason::kUnknown);
    }
  }
  job->Complete(std::move(status));
}

ContractCheckOptions Engine::Impl::CheckOptions(const Call& call) const {
  using Residents = ContractCheckOptions::Residents;
  const Residents residents = resolver == nullptr         ? Residents::kUnavailable
                              : call.principal == nullptr ? Residents::kNeedSession
                                                          : Residents::kAvailable;
  return {.limits = engine.options_.limits,
          .refuse_large_replies = engine.options_.refuse_large_replies,
          .residents = residents,
          .arenas = resolver != nullptr && resolver->has_arenas()};
}

absl::Status Engine::Impl::Prepare(Job& job, Executor*& executor) const {
  Call& call = job.call;
  if (call.method == nullptr) {
    return InvalidArgument(Reason::kUnknownOperator, {}, {}, {}, "the method is unknown");
  }
  RLK_RETURN_IF_ERROR(ResolveInputs(call, resolver));
  RLK_ASSIGN_OR_RETURN(job.checked, CheckCall(call, CheckOptions(call)));
  RLK_RETURN_IF_ERROR(RefuseAfterLoss(call.options));
  RLK_ASSIGN_OR_RETURN(executor, Choose(job));
  if (call.options.verification == Verification::kReference) {
    RLK_RETURN_IF_ERROR(CheckReferenceAvailable(*call.method, job.checked, engine.options_.limits,
                                                engine.tolerance_));
  }
  const DeviceInfo& device = executor->device().info();
  BeginReport(job, device);
  RLK_RETURN_IF_ERROR(ReserveOutputs(job, resolver, device));
  job.result.report.transports = Transports(job);
  return absl::OkStatus();
}

// Selects the variant and the device that runs it.
absl::StatusOr<Executor*> Engine::Impl::Choose(Job& job) const {
  const Call& call = job.call;
  const std::vector<MutableTensorView> outputs = PlannedViews(job.checked);
  const KernelArgs args = MakeKernelArgs(job, job.checked.input_views, outputs);
  RLK_ASSIGN_OR_RETURN(Executor * pinned, PinnedDevice(call.options));
  RLK_ASSIGN_OR_RETURN(const std::optional<DeviceInfo> home, HomeDevice(call, resolver));
  if (home && pinned == nullptr) {
    RLK_ASSIGN_OR_RETURN(pinned, FindDevice(home->uuid, "options"));
  }
  if (pinned != nullptr) RLK_RETURN_IF_ERROR(CheckHome(home, pinned->device().info()));

  // Selection follows the capability of the GPU that will run the call: both come from one pick.
  Executor* const candidate = pinned != nullptr ? pinned : Healthy(DeviceKind::kCuda);
  SelectionQuery query;
  query.contract = call.options.contract;
  query.backend = call.options.backend;
  query.allow_fallback = call.options.allow_fallback;
  query.minimum_claim = call.options.minimum_claim;
  query.has_cuda = candidate != nullptr && candidate->device().info().kind == DeviceKind::kCuda;
  if (query.has_cuda) query.device = TraitsOf(candidate->device().info());
  RLK_ASSIGN_OR_RETURN(job.selection, Select(engine.registry_, *call.method, query, args));
  const KernelArgs selected = MakeKernelArgs(job, job.checked.input_views, outputs);
  if (call.method->decl.validate != nullptr) {
    RLK_RETURN_IF_ERROR(call.method->decl.validate(selected));
  }
  ResolveAttribute(*call.method, selected, job.checked.attributes);
  if (call.method->decl.validate_values != nullptr) {
    RLK_RETURN_IF_ERROR(CheckValues(job, selected, [this](const DeviceInfo& device) {
      absl::StatusOr<Executor*> executor = FindDevice(device.uuid, "options");
      return executor.ok() ? absl::StatusOr<Device*>(&(*executor)->device()) : executor.status();
    }));
  }

  const DeviceKind kind = BackendDevice(job.selection.variant->backend);
  if (pinned != nullptr && pinned->device().info().kind != kind) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition,
        {Reason::kBackendUnavailable, "options.device_uuid", call.options.device_uuid,
         "a device of backend " + std::string(BackendName(job.selection.variant->backend))},
        "no variant runs this call on that device");
  }
  if (job.selection.variant->workspace_bytes != nullptr) {
    job.workspace_bytes = job.selection.variant->workspace_bytes(selected);
  }
  if (candidate != nullptr && candidate->device().info().kind == kind) return candidate;
  return PickDevice(kind);
}

void Engine::Impl::BeginReport(Job& job, const DeviceInfo& device) const {
  const Call& call = job.call;
  job.result.method = call.method;
  CallReport& report = job.result.report;
  report.contract = job.selection.contract->id;
  report.backend = job.selection.variant->backend;
  report.kernel = job.selection.variant->kernel;
  report.claim = job.selection.claim;
  report.rejected = std::move(job.selection.rejected);
  report.fallback = std::move(job.selection.fallback);
  report.attributes = job.checked.attributes;
  report.input_capture = Capture(job, device);
  for (const TensorArg& input : call.inputs) {
    if (input.source != TensorSource::kInline) {
      report.input_bytes[static_cast<size_t>(input.place)] += input.data.size;
    }
    if (!input.synthetic) continue;
    report.synthetic_inputs.push_back(
        call.method->signature.inputs[static_cast<size_t>(input.spec)].name);
  }
  report.phases.receive = std::max<int64_t>(Nanoseconds(job.submitted - call.received), 0);
}

// The call is the sampler's choice. One that its caller wants repeated is repeated anyway.
void Engine::Impl::Sample(Job& job) {
  if (job.repeats()) return;
  if (job.method().signature.direction == Direction::kUpdate) {
    if (observer != nullptr) observer->OnReplaySkipped(ReplaySkip::kState);
  } else if (job.result.report.input_capture == InputCapture::kLive) {
    if (observer != nullptr) observer->OnReplaySkipped(ReplaySkip::kLiveInput);
  } else {
    job.sampled = true;
  }
}

Executor* Engine::Impl::Healthy(DeviceKind kind) const {
  Executor* best = nullptr;
  for (const auto& executor : executors) {
    if (executor->device().info().kind != kind || !executor->healthy()) continue;
    if (best == nullptr || executor->load() < best->load()) best = executor.get();
  }
  return best;
}

// After the last device of a kind is lost the server is on its way out; only calls that name a
// host backend still run. Selecting another backend by itself would be a silent fallback.
absl::Status Engine::Impl::RefuseAfterLoss(const CallOptions& options) const {
  if (!lost_kind.load(std::memory_order_acquire)) return absl::OkStatus();
  if ((options.backend == BackendName(Backend::kCpu) ||
       options.backend == BackendName(Backend::kGolden)) &&
      Healthy(DeviceKind::kHost) != nullptr) {
    return absl::OkStatus();
  }
  for (const auto& executor : executors) {
    if (!executor->healthy()) {
      return DeviceLostError(executor->device().info(), "the device is lost");
    }
  }
  return absl::OkStatus();
}

// Null when the call names no device.
absl::StatusOr<Executor*> Engine::Impl::PinnedDevice(const CallOptions& options) const {
  if (options.device_uuid.empty()) return nullptr;
  return FindDevice(options.device_uuid, "options.device_uuid");
}

absl::StatusOr<Executor*> Engine::Impl::FindDevice(const std::string& uuid,
                                                   std::string_view field) const {
  std::string known;
  for (const auto& executor : executors) {
    const DeviceInfo& info = executor->device().info();
    if (info.uuid == uuid) {
      if (executor->healthy()) return executor.get();
      return DeviceLostError(info, "the device is lost");
    }
    if (!known.empty()) known += ", ";
    known += info.uuid;
  }
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {Reason::kDeviceNotFound, std::string(field), uuid, known},
                   "this server has no such device");
}

absl::StatusOr<Executor*> Engine::Impl::PickDevice(DeviceKind kind) const {
  if (Executor* executor = Healthy(kind); executor != nullptr) return executor;
  for (const auto& executor : executors) {
    if (executor->device().info().kind == kind) {
      return DeviceLostError(executor->device().info(), "the device is lost");
    }
  }
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {Reason::kBackendUnavailable, "options.backend", {}, {}},
                   "the backend has no device on this server");
}

void Engine::Impl::OnLost(const Device& device) {
  const DeviceInfo& info = device.info();
  if (Healthy(info.kind) != nullptr) return;
  if (lost_kind.exchange(true, std::memory_order_acq_rel)) return;
  if (on_device_lost) on_device_lost(info);
}

void Engine::Impl::Complete(Job& job, absl::StatusOr<CallResult>&& outcome) {
  // What it holds goes with it: the job itself may live longer, in a lost device.
  const Done done = std::move(job.done);
  if (job.holds_reference) reference.Release();
  if (job.recorder != nullptr) job.recorder->OnCall(job.call, outcome.ok() ? &*outcome : nullptr);
  ConcludeResidents(job, outcome);
  if (outcome.ok() && job.recorder != nullptr) HideDigests(job.call.options, outcome->report);
  if (observer != nullptr) {
    const CallReport* report = outcome.ok() ? &outcome->report : nullptr;
    observer->OnCallDone(
        job.call.method, outcome.status(), report,
        job.call.message_bytes > 0 ? job.call.message_bytes : job.checked.input_bytes,
        outcome.ok() ? ResponseBytes(*outcome) : 0, Nanoseconds(Clock::now() - job.call.received));
    observer->OnInFlight(-1);
  }
  done(std::move(outcome));
  Leave();
}

}  // namespace rlk::server
