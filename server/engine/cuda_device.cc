#include "server/engine/cuda_device.h"

#if defined(RLK_WITH_CUDA)

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "kernels/core/status.h"
#include "kernels/cuda/buffer.h"
#include "kernels/cuda/device_guard.h"
#include "kernels/cuda/event.h"
#include "kernels/cuda/pinned.h"
#include "kernels/cuda/status.h"
#include "kernels/cuda/stream.h"
#include "kernels/cuda/upload.h"
#include "kernels/digest/digest_cuda.h"
#include "server/engine/cuda_inspector.h"
#include "server/engine/cuda_probe.h"
#include "server/engine/cuda_residents.h"
#include "server/engine/cuda_sharing.h"
#include "server/engine/host_memory.h"
#include "server/engine/lane_layout.h"

namespace rlk::server {
namespace {

constexpr int kPoisonByte = 0xA5;
// Small result blocks made at start for each lane: replies are read by slow clients, too.
constexpr int kSmallResultsPerLane = 4;
constexpr int64_t kSmallResultBytes = int64_t{64} << 10;
// Launches of one call that are timed apart; later ones extend the last.
constexpr int kTimedLaunches = 4;
// Digests of a call that nobody waits for one by one.
constexpr size_t kPreparedDigests = 32, kNodeBytes = 16;

absl::Status Broken(std::string_view message) {
  return MakeError(absl::StatusCode::kInternal, {Reason::kInternal, "device", {}, {}}, message);
}

class CudaLane;

// What the device and its lanes share. Lanes are used by one thread, the executor's.
struct CudaShared final : CudaAccount {
  CudaDeviceOptions options;
  std::shared_ptr<cuda::PinnedPool> results;
  std::vector<CudaLane*> lanes;

  absl::Status Note(absl::Status status) override {
    if (cuda::IsDeviceLost(status) && healthy.exchange(false)) results->LeakAll();
    return status;
  }
};

class CudaLane final : public Lane {
 public:
  explicit CudaLane(std::shared_ptr<CudaShared> shared) : shared_(std::move(shared)) {}
  ~CudaLane() override;

  absl::Status Create();

  absl::Status Begin(int64_t input_bytes, int64_t output_bytes, int64_t workspace_bytes,
                     int64_t largest_bytes) override;
  absl::StatusOr<TensorView> StageIn(const TensorArg& tensor) override;
  absl::StatusOr<MutableTensorView> Output(DType dtype, const Dims& shape) override;
  absl::Status Fill(const MutableTensorView& output, std::byte value) override;
  std::span<std::byte> Workspace(int64_t bytes) override;
  absl::Status Launch(const Variant& variant, KernelArgs args) override;
  absl::Status PrepareDigest(const TensorView& tensor) override;
  absl::StatusOr<Digest> ComputeDigest(const TensorView& tensor) override;
  absl::StatusOr<HostBytes> StageOut(const MutableTensorView& tensor) override;
  absl::Status StageOutTo(const MutableTensorView& tensor, std::byte* to) override;
  absl::StatusOr<bool> Done() override;
  absl::Status Wait() override;
  PhaseNanos Phases() const override;
  void End() override;

  // Gives memory above the start size back when no call uses the lane. True when some was freed.
  bool Shrink();

 private:
  struct TimedLaunch {
    cuda::Event begin, end;
  };

  int64_t start_bytes() const;
  absl::Status Reserve(int64_t bytes);
  absl::Status Grow(int64_t bytes);
  absl::Status EnqueueDigestTo(const TensorView& tensor, size_t place);
  absl::StatusOr<Digest> DigestContiguous(const TensorView& tensor);
  absl::StatusOr<Digest> DigestThroughHost(const TensorView& tensor);
  absl::Status BringIn(const TensorArg& tensor, std::byte* to);
  absl::Status BeginStageOut();
  // The event after everything enqueued; recorded when somebody asks.
  absl::Status RecordTail();

  std::shared_ptr<CudaShared> shared_;
  cuda::Stream stream_;
  cuda::DeviceBuffer memory_;
  cuda::UploadStaging staging_;
  cuda::PinnedBuffer node_;
  cuda::Event in_begin_, out_begin_, tail_;
  std::array<TimedLaunch, kTimedLaunches> launches_;
  // Whose digests are under way; their last nodes come to the same places in node_.
  std::vector<TensorView> prepared_;

  LaneLayout layout_;
  int64_t input_used_ = 0, output_used_ = 0;
  int launched_ = 0;
  bool active_ = false, staged_in_ = false, staged_out_ = false, tail_recorded_ = true;
};

CudaLane::~CudaLane() {
  std::erase(shared_->lanes, this);
  const cuda::DeviceGuard guard(shared_->options.ordinal);
  if (!shared_->healthy || guard.error() != cudaSuccess) {
    // Buffers of a dead context are leaked, not freed.
    stream_.Leak();
    memory_.Leak();
    staging_.Leak();
    node_.Leak();
    for (cuda::Event* event : {&in_begin_, &out_begin_, &tail_}) event->Leak();
    for (TimedLaunch& launch : launches_) {
      launch.begin.Leak();
      launch.end.Leak();
    }
    return;
  }
  if (stream_.get() != nullptr) cudaStreamSynchronize(stream_.get());
  shared_->bytes_in_use -= memory_.bytes();
}

int64_t CudaLane::start_bytes() const {
  const int64_t bytes = shared_->options.lane_bytes;
  return LaneLayout(bytes, bytes, 0, bytes).end;
}

absl::Status CudaLane::Create() {
  const int64_t lane_bytes = AlignUp(shared_->options.lane_bytes, 2 * kLaneAlignment);
  RLK_ASSIGN_OR_RETURN(stream_, cuda::Stream::Create());
  RLK_RETURN_IF_ERROR(staging_.Create(lane_bytes));
  RLK_ASSIGN_OR_RETURN(node_, cuda::PinnedBuffer::Allocate((kPreparedDigests + 1) * kNodeBytes));
  RLK_ASSIGN_OR_RETURN(in_begin_, cuda::Event::Create(cuda::Event::Timing::kOn));
  RLK_ASSIGN_OR_RETURN(out_begin_, cuda::Event::Create(cuda::Event::Timing::kOn));
  RLK_ASSIGN_OR_RETURN(tail_, cuda::Event::Create(cuda::Event::Timing::kOn));
  for (TimedLaunch& launch : launches_) {
    RLK_ASSIGN_OR_RETURN(launch.begin, cuda::Event::Create(cuda::Event::Timing::kOn));
    RLK_ASSIGN_OR_RETURN(launch.end, cuda::Event::Create(cuda::Event::Timing::kOn));
  }
  RLK_RETURN_IF_ERROR(shared_->results->Reserve(lane_bytes));
  for (int i = 0; i < kSmallResultsPerLane; ++i) {
    RLK_RETURN_IF_ERROR(shared_->results->Reserve(kSmallResultBytes));
  }
  RLK_RETURN_IF_ERROR(Reserve(start_bytes()));
  shared_->lanes.push_back(this);
  return absl::OkStatus();
}

bool CudaLane::Shrink() {
  if (active_ || memory_.bytes() <= start_bytes()) return false;
  shared_->bytes_in_use -= memory_.bytes();
  memory_.Free();
  return true;
}

absl::Status CudaLane::Grow(int64_t bytes) {
  if (!shared_->Take(bytes - memory_.bytes())) {
    const int64_t others = shared_->bytes_in_use - memory_.bytes();
    return CudaAccount::Exhausted(bytes, shared_->bytes_max - others);
  }
  memory_.Free();
  // What was taken is given back before what the buffer has is counted.
  shared_->Give(bytes);
  RLK_ASSIGN_OR_RETURN(memory_, cuda::DeviceBuffer::Allocate(bytes));
  shared_->bytes_in_use += memory_.bytes();
  return absl::OkStatus();
}

absl::Status CudaLane::Reserve(int64_t bytes) {
  if (bytes <= memory_.bytes()) return absl::OkStatus();
  absl::Status status = Grow(bytes);
  if (status.code() != absl::StatusCode::kResourceExhausted) return status;
  // Idle lanes that grew for an earlier call give way.
  bool freed = false;
  for (CudaLane* lane : shared_->lanes) freed = (lane != this && lane->Shrink()) || freed;
  return freed ? Grow(bytes) : status;
}

absl::Status CudaLane::Begin(int64_t input_bytes, int64_t output_bytes, int64_t workspace_bytes,
                             int64_t largest_bytes) {
  layout_ = LaneLayout(input_bytes, output_bytes, workspace_bytes, largest_bytes);
  RLK_RETURN_IF_ERROR(shared_->Note(Reserve(std::max(layout_.end, start_bytes()))));
  staging_.Reset();
  prepared_.clear();
  input_used_ = output_used_ = 0;
  launched_ = 0;
  active_ = true;
  staged_in_ = staged_out_ = false;
  tail_recorded_ = false;
  return absl::OkStatus();
}

absl::StatusOr<TensorView> CudaLane::StageIn(const TensorArg& tensor) {
  TensorView view{tensor.dtype, tensor.shape, tensor.strides, memory_.data() + input_used_};
  if (tensor.data.size == 0) return view;
  if (tensor.data.size > layout_.outputs - input_used_) {
    return Broken("more input bytes are staged than the call began with");
  }
  absl::Status status;
  if (!staged_in_) status = in_begin_.Record(stream_.get());
  staged_in_ = true;
  tail_recorded_ = false;
  if (status.ok()) status = BringIn(tensor, memory_.data() + input_used_);
  RLK_RETURN_IF_ERROR(shared_->Note(std::move(status)));
  input_used_ += AlignUp(tensor.data.size, kLaneAlignment);
  return view;
}

// Bytes that lie on a device, or where it can read them itself, are not gathered by the host.
absl::Status CudaLane::BringIn(const TensorArg& tensor, std::byte* to) {
  const bool on_device =
      tensor.memory != nullptr && tensor.memory->device().kind != DeviceKind::kHost;
  if (!on_device && (tensor.memory == nullptr || !tensor.memory->page_locked())) {
    return staging_.Upload(tensor.data.pieces, to, stream_.get());
  }
  return cuda::ToStatus(
      cudaMemcpyAsync(to, tensor.memory->data() + tensor.memory_offset,
                      static_cast<size_t>(tensor.data.size),
                      on_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice, stream_.get()),
      "cudaMemcpyAsync");
}

absl::StatusOr<MutableTensorView> CudaLane::Output(DType dtype, const Dims& shape) {
  MutableTensorView view{dtype, shape, memory_.data() + layout_.outputs + output_used_};
  const int64_t bytes = view.bytes();
  if (bytes > layout_.workspace - layout_.outputs - output_used_) {
    return Broken("more output bytes are asked for than the call began with");
  }
  if (shared_->options.poison_outputs && bytes > 0) {
    tail_recorded_ = false;
    RLK_RETURN_IF_ERROR(shared_->Note(cuda::ToStatus(
        cudaMemsetAsync(view.data, kPoisonByte, static_cast<size_t>(bytes), stream_.get()),
        "cudaMemsetAsync")));
  }
  output_used_ += AlignUp(bytes, kLaneAlignment);
  return view;
}

absl::Status CudaLane::Fill(const MutableTensorView& output, std::byte value) {
  if (output.bytes() == 0) return absl::OkStatus();
  tail_recorded_ = false;
  return shared_->Note(
      cuda::ToStatus(cudaMemsetAsync(output.data, static_cast<int>(value),
                                     static_cast<size_t>(output.bytes()), stream_.get()),
                     "cudaMemsetAsync"));
}

std::span<std::byte> CudaLane::Workspace(int64_t bytes) {
  if (bytes > layout_.nodes - layout_.workspace) return {};
  std::byte* const workspace = memory_.data() + layout_.workspace;
  if (shared_->options.poison_outputs && bytes > 0) {
    tail_recorded_ = false;
    cudaMemsetAsync(workspace, kPoisonByte, static_cast<size_t>(bytes), stream_.get());
  }
  return {workspace, static_cast<size_t>(bytes)};
}

absl::Status CudaLane::Launch(const Variant& variant, KernelArgs args) {
  args.stream = stream_.ref();
  args.pool = nullptr;
  tail_recorded_ = false;
  TimedLaunch& timed = launches_[static_cast<size_t>(std::min(launched_, kTimedLaunches - 1))];
  absl::Status status;
  if (launched_ < kTimedLaunches) status = timed.begin.Record(stream_.get());
  if (status.ok()) status = variant.launch(args);
  if (status.ok()) status = timed.end.Record(stream_.get());
  if (status.ok()) ++launched_;
  return shared_->Note(std::move(status));
}

absl::Status CudaLane::EnqueueDigestTo(const TensorView& tensor, size_t place) {
  const std::span<std::byte> nodes(memory_.data() + layout_.nodes,
                                   static_cast<size_t>(layout_.end - layout_.nodes));
  tail_recorded_ = false;
  RLK_ASSIGN_OR_RETURN(const std::byte* last,
                       EnqueueDigest(tensor.data, tensor.bytes(), nodes, stream_.ref()));
  RLK_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(node_.data() + place * kNodeBytes, last, kNodeBytes,
                                           cudaMemcpyDeviceToHost, stream_.get()));
  return absl::OkStatus();
}

absl::Status CudaLane::PrepareDigest(const TensorView& tensor) {
  if (tensor.bytes() == 0 || !tensor.contiguous() || prepared_.size() == kPreparedDigests) {
    return absl::OkStatus();
  }
  RLK_RETURN_IF_ERROR(shared_->Note(EnqueueDigestTo(tensor, prepared_.size())));
  prepared_.push_back(tensor);
  return absl::OkStatus();
}

absl::StatusOr<Digest> CudaLane::DigestContiguous(const TensorView& tensor) {
  const auto prepared = std::ranges::find_if(prepared_, [&](const TensorView& other) {
    return other.data == tensor.data && other.bytes() == tensor.bytes();
  });
  auto place = static_cast<size_t>(prepared - prepared_.begin());
  if (prepared == prepared_.end()) {
    place = kPreparedDigests;
    RLK_RETURN_IF_ERROR(EnqueueDigestTo(tensor, place));
  }
  RLK_RETURN_IF_ERROR(RecordTail());
  RLK_RETURN_IF_ERROR(tail_.Wait());
  std::array<uint8_t, kNodeBytes> node;
  std::memcpy(node.data(), node_.data() + place * kNodeBytes, node.size());
  return DigestRoot(tensor.dtype, tensor.shape, &node);
}

// Strided inputs: rare, and their bytes came from the host.
absl::StatusOr<Digest> CudaLane::DigestThroughHost(const TensorView& tensor) {
  int64_t last = 0;
  for (int d = 0; d < tensor.shape.rank(); ++d) last += (tensor.shape[d] - 1) * tensor.strides[d];
  const int64_t bytes = (last + 1) * DTypeSize(tensor.dtype);
  RLK_ASSIGN_OR_RETURN(const auto block, shared_->results->Take(bytes));
  tail_recorded_ = false;
  RLK_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(block->data(), tensor.data, static_cast<size_t>(bytes),
                                           cudaMemcpyDeviceToHost, stream_.get()));
  RLK_RETURN_IF_ERROR(RecordTail());
  RLK_RETURN_IF_ERROR(tail_.Wait());
  TensorView host = tensor;
  host.data = block->data();
  return rlk::ComputeDigest(host);
}

absl::StatusOr<Digest> CudaLane::ComputeDigest(const TensorView& tensor) {
  if (tensor.bytes() == 0) return DigestRoot(tensor.dtype, tensor.shape, nullptr);
  absl::StatusOr<Digest> digest =
      tensor.contiguous() ? DigestContiguous(tensor) : DigestThroughHost(tensor);
  if (!digest.ok()) return shared_->Note(digest.status());
  return digest;
}

absl::StatusOr<HostBytes> CudaLane::StageOut(const MutableTensorView& tensor) {
  HostBytes bytes;
  bytes.size = tensor.bytes();
  if (bytes.size == 0) return bytes;
  RLK_RETURN_IF_ERROR(BeginStageOut());
  RLK_ASSIGN_OR_RETURN(auto block, shared_->results->Take(bytes.size));
  RLK_RETURN_IF_ERROR(shared_->Note(
      cuda::ToStatus(cudaMemcpyAsync(block->data(), tensor.data, static_cast<size_t>(bytes.size),
                                     cudaMemcpyDeviceToHost, stream_.get()),
                     "cudaMemcpyAsync")));
  bytes.pieces.emplace_back(block->data(), static_cast<size_t>(bytes.size));
  bytes.owner = std::move(block);
  return bytes;
}

absl::Status CudaLane::BeginStageOut() {
  absl::Status status;
  if (!staged_out_) status = out_begin_.Record(stream_.get());
  staged_out_ = true;
  tail_recorded_ = false;
  return shared_->Note(std::move(status));
}

absl::Status CudaLane::StageOutTo(const MutableTensorView& tensor, std::byte* to) {
  if (tensor.bytes() == 0) return absl::OkStatus();
  RLK_RETURN_IF_ERROR(BeginStageOut());
  return shared_->Note(
      cuda::ToStatus(cudaMemcpyAsync(to, tensor.data, static_cast<size_t>(tensor.bytes()),
                                     cudaMemcpyDeviceToHost, stream_.get()),
                     "cudaMemcpyAsync"));
}

absl::Status CudaLane::RecordTail() {
  if (tail_recorded_) return absl::OkStatus();
  RLK_RETURN_IF_ERROR(tail_.Record(stream_.get()));
  tail_recorded_ = true;
  return absl::OkStatus();
}

absl::StatusOr<bool> CudaLane::Done() {
  RLK_RETURN_IF_ERROR(shared_->Note(RecordTail()));
  absl::StatusOr<bool> done = tail_.Done();
  if (!done.ok()) return shared_->Note(done.status());
  return done;
}

absl::Status CudaLane::Wait() {
  RLK_RETURN_IF_ERROR(shared_->Note(RecordTail()));
  return shared_->Note(tail_.Wait());
}

PhaseNanos CudaLane::Phases() const {
  PhaseNanos phases;
  if (staged_in_ && launched_ > 0) {
    phases.stage_in = cuda::ElapsedNanos(in_begin_, launches_.front().begin);
  }
  for (int i = 0; i < std::min(launched_, kTimedLaunches); ++i) {
    const TimedLaunch& timed = launches_[static_cast<size_t>(i)];
    phases.kernel += cuda::ElapsedNanos(timed.begin, timed.end);
  }
  if (staged_out_ && tail_recorded_) phases.stage_out = cuda::ElapsedNanos(out_begin_, tail_);
  return phases;
}

void CudaLane::End() { active_ = false; }

class CudaDevice final : public Device {
 public:
  CudaDevice(DeviceInfo info, std::shared_ptr<CudaShared> shared)
      : info_(std::move(info)),
        shared_(std::move(shared)),
        residents_(CudaResidents::Make(info_, shared_, shared_->options.poison_outputs)),
        sharing_(CudaSharing::Make(info_, shared_)),
        inspector_(MakeCudaInspector(shared_)) {}

  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<std::unique_ptr<Lane>> NewLane() override;
  bool runs_inline() const override { return false; }
  bool healthy() const override { return shared_->healthy; }
  int64_t memory_bytes_in_use() const override {
    return shared_->bytes_in_use - residents_->bytes_in_use() - sharing_->bytes_in_use();
  }
  absl::StatusOr<std::shared_ptr<ResidentMemory>> AllocateResident(int64_t bytes) override {
    return residents_->Allocate(bytes);
  }
  absl::StatusOr<std::unique_ptr<Transfer>> NewTransfer() override {
    return residents_->NewTransfer();
  }
  Inspector* inspector() const override { return inspector_.get(); }
  int64_t resident_bytes_in_use() const override { return residents_->bytes_in_use(); }
  void ReleaseIdleMemory() override { residents_->ReleaseIdle(); }
  absl::StatusOr<std::shared_ptr<const void>> LockPages(std::byte* data, int64_t bytes) override {
    return sharing_->LockPages(data, bytes);
  }
  absl::StatusOr<SharedMemory> AllocateShared(int64_t bytes) override {
    return sharing_->Allocate(bytes);
  }
  std::string sharing_problem() const override { return sharing_->problem(); }
  int64_t sharing_granularity() const override { return sharing_->granularity(); }
  int64_t shared_bytes_in_use() const override { return sharing_->bytes_in_use(); }

 private:
  const DeviceInfo info_;
  const std::shared_ptr<CudaShared> shared_;
  const std::shared_ptr<CudaResidents> residents_;
  const std::shared_ptr<CudaSharing> sharing_;
  const std::unique_ptr<Inspector> inspector_;
};

absl::StatusOr<std::unique_ptr<Lane>> CudaDevice::NewLane() {
  // The executor's thread stays on this device.
  RLK_RETURN_IF_ERROR(shared_->Note(cuda::ToStatus(cudaSetDevice(info_.ordinal), "cudaSetDevice")));
  auto lane = std::make_unique<CudaLane>(shared_);
  RLK_RETURN_IF_ERROR(shared_->Note(lane->Create()));
  return std::unique_ptr<Lane>(std::move(lane));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(const CudaDeviceOptions& options) {
  const cuda::DeviceGuard guard(options.ordinal);
  absl::Status status = cuda::ToStatus(guard.error(), "cudaSetDevice");
  absl::StatusOr<DeviceInfo> info = CudaDeviceInfo(options.ordinal);
  if (status.ok()) status = info.status();
  if (!status.ok()) {
    return MakeError(absl::StatusCode::kUnavailable,
                     {Reason::kDeviceLost, "device", std::to_string(options.ordinal), {}},
                     std::string(status.message()));
  }
  auto shared = std::make_shared<CudaShared>();
  shared->options = options;
  shared->ordinal = options.ordinal;
  shared->bytes_max = options.device_bytes_max;
  shared->results = cuda::PinnedPool::Create(options.device_bytes_max);
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(*std::move(info), std::move(shared)));
}

}  // namespace rlk::server

#else  // a build without CUDA

#include "kernels/core/status.h"

namespace rlk::server {

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(const CudaDeviceOptions& options) {
  return MakeError(absl::StatusCode::kUnavailable,
                   {Reason::kDeviceLost, "device", std::to_string(options.ordinal), {}},
                   "this build has no CUDA backend");
}

}  // namespace rlk::server

#endif
