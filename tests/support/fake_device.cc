#include "tests/support/fake_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "kernels/core/parallel.h"
#include "kernels/core/status.h"
#include "server/engine/host_memory.h"
#include "server/engine/host_residents.h"

namespace rlk::test {

void FakeControl::FailAt(FakePoint point, int64_t nth, bool sticky) {
  std::lock_guard<std::mutex> lock(mutex_);
  faults_.emplace(point, Fault{nth, sticky});
}

void FakeControl::Lose() {
  std::lock_guard<std::mutex> lock(mutex_);
  sticky_ = true;
}

void FakeControl::FlipBitAt(int64_t launch) {
  std::lock_guard<std::mutex> lock(mutex_);
  flips_.push_back(launch);
}

void FakeControl::SetHook(std::function<void(FakePoint, int64_t)> hook) {
  std::lock_guard<std::mutex> lock(mutex_);
  hook_ = std::move(hook);
}

void FakeControl::Hold() {
  std::lock_guard<std::mutex> lock(mutex_);
  held_ = true;
}

void FakeControl::HoldInLaunch() {
  std::lock_guard<std::mutex> lock(mutex_);
  held_in_launch_ = true;
}

void FakeControl::Release() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    held_ = held_in_launch_ = false;
  }
  changed_.notify_all();
}

void FakeControl::AwaitArrivals(FakePoint point, int64_t count) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return arrivals_[point] >= count; });
}

int64_t FakeControl::arrivals(FakePoint point) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = arrivals_.find(point);
  return found == arrivals_.end() ? 0 : found->second;
}

int64_t FakeControl::busy_lanes_max() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return busy_lanes_max_;
}

int64_t FakeControl::lanes_destroyed() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return lanes_destroyed_;
}

bool FakeControl::sticky() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return sticky_;
}

bool FakeControl::held() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return held_;
}

void FakeControl::AwaitRelease() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return !held_; });
}

absl::Status FakeControl::Arrive(FakePoint point) {
  std::function<void(FakePoint, int64_t)> hook;
  int64_t nth;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    nth = ++arrivals_[point];
    hook = hook_;
  }
  changed_.notify_all();
  if (hook) hook(point, nth);
  std::unique_lock<std::mutex> lock(mutex_);
  if (point == FakePoint::kLaunch) changed_.wait(lock, [this] { return !held_in_launch_; });
  const auto [begin, end] = faults_.equal_range(point);
  for (auto fault = begin; fault != end; ++fault) {
    if (fault->second.nth > nth) continue;
    const bool sticky = fault->second.sticky;
    faults_.erase(fault);
    if (sticky) {
      sticky_ = true;
      break;
    }
    // As the seam documents: room that is not there is not the end of the device.
    const bool memory = point == FakePoint::kBegin || point == FakePoint::kOutput;
    return MakeError(
        memory ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kInternal,
        {memory ? Reason::kDeviceMemoryExhausted : Reason::kInternal, {}, {}, {}, memory ? 10 : 0},
        "planted fault");
  }
  if (!sticky_) return absl::OkStatus();
  return MakeError(absl::StatusCode::kUnavailable, {Reason::kDeviceLost, {}, {}, {}},
                   "planted sticky fault");
}

namespace {

struct Buffer {
  std::unique_ptr<std::byte[]> storage;
  std::byte* data = nullptr;

  explicit Buffer(int64_t bytes) {
    constexpr int64_t kAlignment = 256;
    storage.reset(new std::byte[static_cast<size_t>(bytes + kAlignment)]);
    const auto address = reinterpret_cast<uintptr_t>(storage.get());
    data = storage.get() + (kAlignment - static_cast<int64_t>(address % kAlignment)) % kAlignment;
  }
};

}  // namespace

class FakeLane final : public server::Lane {
 public:
  explicit FakeLane(std::shared_ptr<FakeControl> control) : control_(std::move(control)) {}
  ~FakeLane() override {
    std::lock_guard<std::mutex> lock(control_->mutex_);
    ++control_->lanes_destroyed_;
  }

  absl::Status Begin(int64_t, int64_t, int64_t workspace_bytes, int64_t) override {
    RLK_RETURN_IF_ERROR(control_->Arrive(FakePoint::kBegin));
    workspace_ = std::make_unique<Buffer>(workspace_bytes);
    std::lock_guard<std::mutex> lock(control_->mutex_);
    control_->busy_lanes_max_ = std::max(control_->busy_lanes_max_, ++control_->busy_lanes_);
    return absl::OkStatus();
  }

  absl::StatusOr<TensorView> StageIn(const TensorArg& tensor) override {
    RLK_RETURN_IF_ERROR(control_->Arrive(FakePoint::kStageIn));
    Buffer& buffer = buffers_.emplace_back(tensor.data.size);
    // Pieces are looked at later, as a DMA engine would.
    std::vector<std::span<const std::byte>> pieces = tensor.data.pieces;
    if (tensor.memory != nullptr && tensor.memory->device().kind != DeviceKind::kHost) {
      pieces = {
          {tensor.memory->data() + tensor.memory_offset, static_cast<size_t>(tensor.data.size)}};
    }
    pending_.push_back([pieces = std::move(pieces), size = tensor.data.size, to = buffer.data] {
      server::Gather({pieces, size, nullptr}, to);
    });
    return TensorView{tensor.dtype, tensor.shape, tensor.strides, buffer.data};
  }

  absl::StatusOr<MutableTensorView> Output(DType dtype, const Dims& shape) override {
    RLK_RETURN_IF_ERROR(control_->Arrive(FakePoint::kOutput));
    MutableTensorView view{dtype, shape, nullptr};
    Buffer& buffer = buffers_.emplace_back(view.bytes());
    std::memset(buffer.data, 0xA5, static_cast<size_t>(view.bytes()));
    view.data = buffer.data;
    return view;
  }

  absl::Status Fill(const MutableTensorView& output, std::byte value) override {
    std::memset(output.data, static_cast<int>(value), static_cast<size_t>(output.bytes()));
    return absl::OkStatus();
  }

  std::span<std::byte> Workspace(int64_t bytes) override {
    return {workspace_->data, static_cast<size_t>(bytes)};
  }

  absl::Status Launch(const Variant& variant, KernelArgs args) override {
    // A launch copies its parameters before anything else: what they point to may be gone when the
    // kernel runs, or when a launch that hung returns.
    struct Parameters {
      MethodSignature signature;
      std::vector<TensorView> inputs;
      std::vector<int32_t> input_begin;
      std::vector<MutableTensorView> outputs;
      std::vector<AttributeValue> attributes;
      std::string contract;
    };
    auto parameters =
        std::make_shared<Parameters>(Parameters{*args.signature,
                                                {args.inputs.begin(), args.inputs.end()},
                                                {args.input_begin.begin(), args.input_begin.end()},
                                                {args.outputs.begin(), args.outputs.end()},
                                                {args.attributes.begin(), args.attributes.end()},
                                                std::string(args.contract)});
    const LaunchFn launch = variant.launch;
    RLK_RETURN_IF_ERROR(control_->Arrive(FakePoint::kLaunch));
    bool flip = false;
    {
      std::lock_guard<std::mutex> lock(control_->mutex_);
      const int64_t nth = ++control_->launches_;
      flip = std::count(control_->flips_.begin(), control_->flips_.end(), nth) > 0;
    }
    pending_.push_back([this, parameters, args, launch, flip]() mutable {
      args.signature = &parameters->signature;
      args.inputs = parameters->inputs;
      args.input_begin = parameters->input_begin;
      args.outputs = parameters->outputs;
      args.attributes = parameters->attributes;
      args.contract = parameters->contract;
      args.pool = &pool_;
      kernel_status_.Update(launch(args));
      for (const MutableTensorView& output : parameters->outputs) {
        if (!flip || !output.present() || output.bytes() == 0) continue;
        output.as<uint8_t>()[output.bytes() / 2] ^= 1;
        break;
      }
    });
    return absl::OkStatus();
  }

  absl::StatusOr<Digest> ComputeDigest(const TensorView& tensor) override {
    RLK_RETURN_IF_ERROR(control_->Arrive(FakePoint::kDigest));
    control_->AwaitRelease();
    RunPending();
    return rlk::ComputeDigest(tensor);
  }

  absl::StatusOr<HostBytes> StageOut(const MutableTensorView& tensor) override {
    RLK_RETURN_IF_ERROR(control_->Arrive(FakePoint::kStageOut));
    auto block = std::make_shared<Buffer>(tensor.bytes());
    HostBytes bytes;
    bytes.size = tensor.bytes();
    bytes.pieces.emplace_back(block->data, static_cast<size_t>(bytes.size));
    bytes.owner = block;
    pending_.push_back([tensor, to = block->data] {
      std::memcpy(to, tensor.data, static_cast<size_t>(tensor.bytes()));
    });
    return bytes;
  }

  absl::Status StageOutTo(const MutableTensorView& tensor, std::byte* to) override {
    RLK_RETURN_IF_ERROR(control_->Arrive(FakePoint::kStageOut));
    pending_.push_back(
        [tensor, to] { std::memcpy(to, tensor.data, static_cast<size_t>(tensor.bytes())); });
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Done() override {
    RLK_RETURN_IF_ERROR(control_->Arrive(FakePoint::kDone));
    if (control_->held()) return false;
    RunPending();
    return std::exchange(kernel_status_, absl::OkStatus()).ok()
               ? absl::StatusOr<bool>(true)
               : absl::StatusOr<bool>(absl::InternalError("the kernel failed"));
  }

  absl::Status Wait() override {
    control_->AwaitRelease();
    RunPending();
    return control_->sticky() ? absl::UnavailableError("lost") : absl::OkStatus();
  }

  PhaseNanos Phases() const override {
    return {.receive = 0, .queue = 0, .stage_in = 1, .kernel = 2, .stage_out = 3};
  }

  void End() override {
    if (!pending_.empty()) std::abort();  // a call was abandoned with live buffers
    buffers_.clear();
    workspace_.reset();
    std::lock_guard<std::mutex> lock(control_->mutex_);
    --control_->busy_lanes_;
  }

 private:
  void RunPending() {
    for (std::function<void()>& operation : pending_) operation();
    pending_.clear();
  }

  std::shared_ptr<FakeControl> control_;
  ThreadPool pool_{1};
  std::vector<std::function<void()>> pending_;
  std::vector<Buffer> buffers_;
  std::unique_ptr<Buffer> workspace_;
  absl::Status kernel_status_;
};

class FakeDevice final : public server::Device {
 public:
  FakeDevice(std::shared_ptr<FakeControl> control, const FakeDeviceOptions& options)
      : control_(std::move(control)), runs_inline_(options.runs_inline) {
    info_.kind = options.kind;
    info_.ordinal = options.ordinal;
    info_.name = "fake";
    info_.uuid = options.uuid;
    info_.compute_capability = options.kind == DeviceKind::kCuda ? options.compute_capability : 0;
    info_.shared_bytes_per_block = options.kind == DeviceKind::kCuda ? 227 << 10 : 0;
    residents_ = server::HostResidents::Make(info_, /*poison=*/true);
    shared_ = server::HostResidents::Make(info_, /*poison=*/false);
  }

  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<std::unique_ptr<server::Lane>> NewLane() override {
    return std::unique_ptr<server::Lane>(std::make_unique<FakeLane>(control_));
  }
  bool runs_inline() const override { return runs_inline_; }
  bool healthy() const override { return !control_->sticky(); }
  int64_t memory_bytes_in_use() const override { return 0; }
  absl::StatusOr<std::shared_ptr<ResidentMemory>> AllocateResident(int64_t bytes) override {
    return residents_->Allocate(bytes);
  }
  absl::StatusOr<std::unique_ptr<server::Transfer>> NewTransfer() override {
    return server::MakeHostTransfer();
  }
  int64_t resident_bytes_in_use() const override { return residents_->bytes_in_use(); }
  // Memory like that of residents, and a descriptor of something else.
  absl::StatusOr<server::SharedMemory> AllocateShared(int64_t bytes) override {
    server::SharedMemory made;
    RLK_ASSIGN_OR_RETURN(made.memory, shared_->Allocate(bytes));
    made.descriptor = server::OwnedFd(memfd_create("fake-gpu", MFD_CLOEXEC));
    return made;
  }
  std::string sharing_problem() const override { return {}; }
  int64_t shared_bytes_in_use() const override { return shared_->bytes_in_use(); }
  // Counts what is locked.
  absl::StatusOr<std::shared_ptr<const void>> LockPages(std::byte* data, int64_t) override {
    control_->AddLocks(1);
    return std::shared_ptr<const void>(
        data, [control = control_](const void*) { control->AddLocks(-1); });
  }

 private:
  std::shared_ptr<FakeControl> control_;
  DeviceInfo info_;
  std::shared_ptr<server::HostResidents> residents_, shared_;
  bool runs_inline_;
};

std::unique_ptr<server::Device> MakeFakeDevice(std::shared_ptr<FakeControl> control,
                                               const FakeDeviceOptions& options) {
  return std::make_unique<FakeDevice>(std::move(control), options);
}

}  // namespace rlk::test
