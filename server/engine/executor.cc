#include "server/engine/executor.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <optional>
#include <utility>

#include "kernels/core/status.h"

// Present when the program is built with a leak checker, which is told that a leak is meant.
extern "C" void __lsan_ignore_object(const void*) __attribute__((weak));

namespace rlk::server {
namespace {

// With work in flight and none arriving, the thread first polls without pause, then sleeps between
// looks: a short call, or a copy of 256 MiB, does not wait for a timer, a long one does not burn a
// core.
constexpr std::chrono::microseconds kSpin{10000};
constexpr std::chrono::microseconds kPollInterval{50};
// After work on a device of its own, the thread looks for more for this long before it sleeps: who
// makes one call after the other does not wait for a thread to wake.
constexpr std::chrono::microseconds kLinger{500};
// How often a device is looked at. Transfers, comparisons and arenas use it too, and what meets a
// sticky error there leaves it unhealthy and knows no executor.
constexpr std::chrono::milliseconds kLook{20};

// What a lost device may still use. Never freed.
struct Graveyard {
  std::unique_ptr<Device> device;
  std::vector<std::unique_ptr<Lane>> lanes;
  std::vector<std::unique_ptr<CallRun>> runs;
  std::vector<std::shared_ptr<Job>> jobs;
};

void LeakForGood(std::unique_ptr<Graveyard> graveyard) {
  if (__lsan_ignore_object != nullptr) __lsan_ignore_object(graveyard.get());
  (void)graveyard.release();
}

}  // namespace

Executor::Executor(std::unique_ptr<Device> device, const ExecutorOptions& options,
                   Observer* observer, ReferencePool* reference,
                   std::function<void(const Device&)> on_lost)
    : device_(std::move(device)),
      options_(options),
      observer_(observer),
      reference_(reference),
      on_lost_(std::move(on_lost)),
      admission_(options.limits, options.lanes) {}

Executor::~Executor() {
  if (healthy()) return;
  auto graveyard = std::make_unique<Graveyard>();
  graveyard->device = std::move(device_);
  graveyard->lanes = std::move(lanes_);
  for (auto& lane : inline_lanes_) graveyard->lanes.push_back(std::move(lane->lane));
  for (Active& active : active_) graveyard->runs.push_back(std::move(active.run));
  graveyard->jobs = std::move(on_device_);
  LeakForGood(std::move(graveyard));
}

absl::Status Executor::Start() {
  const auto started = std::make_shared<std::promise<absl::Status>>();
  std::future<absl::Status> result = started->get_future();
  // The thread holds the executor: one that is stuck in a lost device must find it when it returns.
  thread_ = std::thread([self = shared_from_this(), started] {
    self->Work([&started](absl::Status status) { started->set_value(std::move(status)); });
  });
  absl::Status status = result.get();
  if (!status.ok()) {
    thread_.join();
    return status;
  }
  if (device_->info().kind != DeviceKind::kHost) {
    watchdog_thread_ = std::thread([this] { WatchDevice(); });
  }
  return absl::OkStatus();
}

void Executor::Stop() {
  bool stuck = false;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    stopping_ = true;
    work_.notify_all();
    if (thread_.joinable()) {
      stopped_.wait(lock, [this] { return exited_ || (lost_ && in_device_call_); });
      stuck = !exited_;
    }
  }
  watchdog_.notify_all();
  if (watchdog_thread_.joinable()) watchdog_thread_.join();
  if (!thread_.joinable()) return;
  if (stuck) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

absl::Status Executor::Submit(const std::shared_ptr<Job>& job) {
  load_.fetch_add(1, std::memory_order_relaxed);
  if (TryRunInline(job)) return absl::OkStatus();
  absl::Status status;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (lost_) {
      status = DeviceLostError(device_->info(), "the device is lost");
    } else {
      status = admission_.Admit(job->queued_bytes());
    }
    if (status.ok()) {
      job->admitted = Clock::now();
      queue_.push_back(job);
      NotifyQueue();
    }
  }
  if (!status.ok()) {
    load_.fetch_sub(1, std::memory_order_relaxed);
    return status;
  }
  work_.notify_one();
  return absl::OkStatus();
}

// Under mutex_, so that the observer sees the changes in their order.
void Executor::NotifyQueue() {
  waiting_.store(admission_.calls(), std::memory_order_relaxed);
  if (observer_ == nullptr) return;
  observer_->OnQueue(device_->info(), admission_.calls(), admission_.bytes());
}

bool Executor::TryRunInline(const std::shared_ptr<Job>& job) {
  if (inline_lanes_.empty() || waiting_.load(std::memory_order_relaxed) != 0) return false;
  if (job->checked.input_bytes + job->checked.output_bytes > options_.inline_run_bytes_max) {
    return false;
  }
  for (const std::unique_ptr<InlineLane>& candidate : inline_lanes_) {
    std::unique_lock<std::mutex> lock(candidate->mutex, std::try_to_lock);
    if (!lock.owns_lock()) continue;
    // Under the lane's lock, so that a loss seen here cannot be followed by a use of the lane.
    if (lost_) return false;
    CallRun run(*device_, *candidate->lane, job);
    run.Start();
    run.Finish();
    if (!device_->healthy()) Lose(std::string(run.status().message()));
    lock.unlock();
    Conclude(run);
    return true;
  }
  return false;
}

void Executor::Work(std::function<void(absl::Status)> started) {
  absl::Status status;
  const int lanes = std::max(options_.lanes, 1);
  for (int i = 0; i < lanes && status.ok(); ++i) {
    absl::StatusOr<std::unique_ptr<Lane>> lane = device_->NewLane();
    status = lane.status();
    if (!status.ok()) break;
    lanes_.push_back(*std::move(lane));
    free_lanes_.push_back(lanes_.size() - 1);
    if (!device_->runs_inline()) continue;
    absl::StatusOr<std::unique_ptr<Lane>> inline_lane = device_->NewLane();
    status = inline_lane.status();
    if (!status.ok()) break;
    inline_lanes_.push_back(std::make_unique<InlineLane>());
    inline_lanes_.back()->lane = *std::move(inline_lane);
  }
  const bool ok = status.ok();
  started(std::move(status));
  if (ok) Loop();
  std::lock_guard<std::mutex> lock(mutex_);
  exited_ = true;
  stopped_.notify_all();
}

void Executor::Loop() {
  Clock::time_point last_progress = Clock::now();
  for (;;) {
    if (lost_) return;
    const bool started = StartNext();
    const bool moved = PollActive();
    if (lost_) return;
    if (started || moved) {
      last_progress = Clock::now();
      continue;
    }
    std::unique_lock<std::mutex> lock(mutex_);
    if (!active_.empty()) {
      // Every lane is busy, or nothing waits.
      if (Clock::now() - last_progress < kSpin) {
        lock.unlock();
        std::this_thread::yield();
      } else {
        work_.wait_for(lock, kPollInterval);
      }
      continue;
    }
    if (queue_.empty() && !stopping_ && !device_->runs_inline() &&
        Clock::now() - last_progress < kLinger) {
      lock.unlock();
      std::this_thread::yield();
      continue;
    }
    work_.wait(lock, [this] { return stopping_ || lost_ || !queue_.empty(); });
    if (stopping_ && queue_.empty()) return;
    last_progress = Clock::now();
  }
}

// Runs a step that may get stuck in the device. False when the device was lost meanwhile: the jobs
// are completed, and nothing that the executor does not own may be touched any more.
template <typename Step>
bool Executor::OnDevice(Step step) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (lost_) return false;
    in_device_call_ = true;
  }
  step();
  std::lock_guard<std::mutex> lock(mutex_);
  in_device_call_ = false;
  return !lost_;
}

bool Executor::StartNext() {
  if (free_lanes_.empty()) return false;
  std::shared_ptr<Job> job;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (queue_.empty()) return false;
    job = std::move(queue_.front());
    queue_.pop_front();
    admission_.Leave(job->queued_bytes());
    NotifyQueue();
    on_device_.push_back(job);
  }
  job->result.report.phases.queue = Nanoseconds(Clock::now() - job->admitted);
  if (absl::Status status = job->CheckCaller(); !status.ok()) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      std::erase(on_device_, job);
    }
    if (observer_ != nullptr) observer_->OnCancelled(CancelStage::kQueue);
    load_.fetch_sub(1, std::memory_order_relaxed);
    job->Complete(std::move(status));
    return true;
  }
  const size_t lane = free_lanes_.back();
  free_lanes_.pop_back();
  active_.push_back({std::make_unique<CallRun>(*device_, *lanes_[lane], std::move(job)), lane});
  CallRun& run = *active_.back().run;
  bool finished = false;
  if (!OnDevice([&] { finished = run.Start(); })) return true;
  if (finished) {
    Active active = std::move(active_.back());
    active_.pop_back();
    Retire(std::move(active));
  }
  return true;
}

bool Executor::PollActive() {
  bool moved = false;
  for (size_t i = 0; i < active_.size();) {
    bool finished = false;
    CallRun& run = *active_[i].run;
    if (!OnDevice([&] { finished = run.Advance(); })) return true;
    if (!finished) {
      ++i;
      continue;
    }
    moved = true;
    Active active = std::move(active_[i]);
    active_.erase(active_.begin() + static_cast<ptrdiff_t>(i));
    Retire(std::move(active));
    if (lost_) return true;
  }
  return moved;
}

void Executor::Retire(Active active) {
  if (!device_->healthy()) {
    const std::string why(active.run->status().message());
    active_.push_back(std::move(active));
    Lose(why);
    return;
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    std::erase(on_device_, active.run->job());
    admission_.Observe(Nanoseconds(Clock::now() - active.run->job()->admitted));
  }
  free_lanes_.push_back(active.lane);
  Conclude(*active.run);
}

// Reports and completes, or hands over to the reference pool. The lane is free already.
void Executor::Conclude(CallRun& run) {
  const std::shared_ptr<Job>& job = run.job();
  load_.fetch_sub(1, std::memory_order_relaxed);
  if (observer_ != nullptr) {
    if (run.cancelled_at()) observer_->OnCancelled(*run.cancelled_at());
    if (run.replay_skipped()) observer_->OnReplaySkipped(ReplaySkip::kMemory);
    if (run.repeat() && job->sampled) observer_->OnReplay(run.repeat()->passed);
    if (run.repeat() && !job->sampled) observer_->OnVerification(job->method(), *run.repeat());
    CountFault(run);
  }
  if (run.mismatch() && options_.on_repeat_mismatch) options_.on_repeat_mismatch(*run.mismatch());
  if (!device_->healthy()) {
    job->Complete(DeviceLostError(device_->info(), std::string(run.status().message())));
  } else if (!run.status().ok()) {
    job->Complete(run.status());
  } else if (job->call.options.verification == Verification::kReference) {
    reference_->Enqueue(job);
  } else {
    job->Complete(std::move(job->result));
  }
}

// Room that was not there is a refusal; any other failure that is neither the caller's nor a
// verdict is the device's. A lost device is counted where it is lost.
void Executor::CountFault(const CallRun& run) {
  const absl::Status& status = run.status();
  if (status.ok() || run.cancelled_at() || !device_->healthy()) return;
  if (status.code() == absl::StatusCode::kResourceExhausted) {
    const std::optional<ErrorDetail> detail = GetErrorDetail(status);
    observer_->OnRejected(detail ? detail->reason : Reason::kUnknown);
  } else if (status.code() == absl::StatusCode::kInternal) {
    observer_->OnDeviceError(device_->info(), /*sticky=*/false);
  }
}

void Executor::WatchDevice() {
  const std::chrono::milliseconds limit(options_.watchdog_ms);
  const auto interval =
      std::clamp<std::chrono::milliseconds>(limit / 4, std::chrono::milliseconds(1), kLook);
  bool unhealthy = false;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!(stopping_ && exited_) && !lost_) {
    watchdog_.wait_for(lock, interval);
    // Who met the error in a call says more of it: that thread gets until the next look.
    if (std::exchange(unhealthy, !device_->healthy()) && unhealthy) {
      lock.unlock();
      Lose("the device met an error outside of calls");
      return;
    }
    if (limit.count() <= 0) continue;
    const int64_t now = Nanoseconds(Clock::now().time_since_epoch());
    const bool over = std::any_of(on_device_.begin(), on_device_.end(), [&](const auto& job) {
      const int64_t launched = job->launched_ns.load(std::memory_order_acquire);
      // Two runs are launched at once.
      const int64_t runs = job->repeats() ? 2 : 1;
      return launched != 0 && now - launched > Nanoseconds(limit) * runs;
    });
    if (!over) continue;
    lock.unlock();
    Lose("a kernel ran longer than watchdog_ms = " + std::to_string(options_.watchdog_ms));
    return;
  }
}

// Under mutex_.
std::deque<std::shared_ptr<Job>> Executor::TakeQueue() {
  for (const std::shared_ptr<Job>& job : queue_) admission_.Leave(job->queued_bytes());
  std::deque<std::shared_ptr<Job>> taken = std::move(queue_);
  queue_.clear();
  NotifyQueue();
  return taken;
}

void Executor::RefuseWaiting() {
  std::deque<std::shared_ptr<Job>> jobs;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    jobs = TakeQueue();
  }
  for (const std::shared_ptr<Job>& job : jobs) {
    load_.fetch_sub(1, std::memory_order_relaxed);
    if (observer_ != nullptr) observer_->OnRejected(Reason::kDraining);
    job->Complete(MakeError(absl::StatusCode::kUnavailable, {Reason::kDraining, {}, {}, {}},
                            "the server shut down before the call had its turn"));
  }
}

void Executor::Lose(std::string_view why) {
  std::vector<std::shared_ptr<Job>> jobs;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (lost_) return;
    lost_ = true;
    jobs = on_device_;
    for (std::shared_ptr<Job>& job : TakeQueue()) jobs.push_back(std::move(job));
  }
  work_.notify_all();
  const DeviceInfo& info = device_->info();
  if (observer_ != nullptr) observer_->OnDeviceError(info, /*sticky=*/true);
  on_lost_(*device_);
  for (const std::shared_ptr<Job>& job : jobs) {
    load_.fetch_sub(1, std::memory_order_relaxed);
    job->Complete(DeviceLostError(info, why));
  }
  stopped_.notify_all();
}

}  // namespace rlk::server
