#include "server/engine/host_device.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/core/parallel.h"
#include "kernels/core/status.h"
#include "server/engine/host_memory.h"
#include "server/engine/host_residents.h"

namespace rlk::server {
namespace {

using Clock = std::chrono::steady_clock;

// Calls up to this size do not wake the pool: waking a thread costs more than their work.
constexpr int64_t kOneThreadBytesMax = int64_t{64} << 10;
// A lane keeps workspace and staging up to this size.
constexpr int64_t kKeptBytesMax = int64_t{16} << 20;
constexpr int kPoisonByte = 0xA5;

int64_t Since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

absl::Status OutOfMemory(int64_t bytes) {
  return MakeError(absl::StatusCode::kResourceExhausted,
                   {Reason::kDeviceMemoryExhausted, "device", std::to_string(bytes) + " bytes",
                    "the memory of the host", 100},
                   "the host has no memory for the call");
}

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t start = line.find_first_not_of(" \t", line.find(':') + 1);
    if (start != std::string::npos) return line.substr(start);
  }
  return "cpu";
}

// Grows, never moves while a call uses it.
class Scratch {
 public:
  explicit Scratch(int64_t alignment) : alignment_(alignment) {}
  ~Scratch() { std::free(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  bool Reserve(int64_t bytes) {
    if (bytes <= bytes_) return true;
    Release();
    const int64_t size = AlignUp(bytes, alignment_);
    data_ = static_cast<std::byte*>(
        std::aligned_alloc(static_cast<size_t>(alignment_), static_cast<size_t>(size)));
    bytes_ = data_ == nullptr ? 0 : size;
    return data_ != nullptr;
  }
  void Trim() {
    if (bytes_ > kKeptBytesMax) Release();
  }
  std::byte* data() { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  void Release() {
    std::free(data_);
    data_ = nullptr;
    bytes_ = 0;
  }

  int64_t alignment_;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

struct HostShared {
  explicit HostShared(int threads) : pool(threads) {}

  ThreadPool pool;
  std::shared_ptr<HostMemory> memory;
  bool poison_outputs = false;
  std::atomic<int64_t> bytes_in_use{0};
};

class HostLane final : public Lane {
 public:
  explicit HostLane(HostShared& shared) : shared_(shared) {}
  ~HostLane() override { shared_.bytes_in_use -= counted_; }

  absl::Status Begin(int64_t input_bytes, int64_t output_bytes, int64_t workspace_bytes,
                     int64_t) override {
    phases_ = {};
    staging_bytes_ = input_bytes;
    staged_ = 0;
    call_bytes_ = input_bytes + output_bytes;
    if (!workspace_.Reserve(workspace_bytes)) return OutOfMemory(workspace_bytes);
    Count();
    return absl::OkStatus();
  }

  absl::StatusOr<TensorView> StageIn(const TensorArg& tensor) override {
    TensorView view{tensor.dtype, tensor.shape, tensor.strides, nullptr};
    if (tensor.data.size == 0) return view;
    view.data = InPlace(tensor.data, DTypeSize(tensor.dtype));
    if (view.data != nullptr) return view;
    const Clock::time_point start = Clock::now();
    // Reserved whole at the first tensor that needs it, so that it does not move under a view.
    if (staged_ == 0 && !staging_.Reserve(staging_bytes_)) return OutOfMemory(staging_bytes_);
    if (tensor.data.size > staging_.bytes() - staged_) {
      return MakeError(absl::StatusCode::kInternal, {Reason::kInternal, {}, {}, {}},
                       "more input bytes are staged than the call began with");
    }
    std::byte* const place = staging_.data() + staged_;
    Gather(tensor.data, place);
    staged_ += AlignUp(tensor.data.size, kStageAlignment);
    view.data = place;
    phases_.stage_in += Since(start);
    Count();
    return view;
  }

  absl::StatusOr<MutableTensorView> Output(DType dtype, const Dims& shape) override {
    MutableTensorView view{dtype, shape, nullptr};
    const int64_t bytes = view.bytes();
    std::shared_ptr<std::byte> block = shared_.memory->Allocate(bytes);
    if (block == nullptr) return OutOfMemory(bytes);
    view.data = block.get();
    if (shared_.poison_outputs) std::memset(view.data, kPoisonByte, static_cast<size_t>(bytes));
    outputs_.push_back(std::move(block));
    return view;
  }

  absl::Status Fill(const MutableTensorView& output, std::byte value) override {
    if (output.bytes() > 0) {
      std::memset(output.data, static_cast<int>(value), static_cast<size_t>(output.bytes()));
    }
    return absl::OkStatus();
  }

  std::span<std::byte> Workspace(int64_t bytes) override {
    if (bytes > workspace_.bytes()) return {};
    if (shared_.poison_outputs && bytes > 0) {
      std::memset(workspace_.data(), kPoisonByte, static_cast<size_t>(bytes));
    }
    return {workspace_.data(), static_cast<size_t>(bytes)};
  }

  absl::Status Launch(const Variant& variant, KernelArgs args) override {
    args.stream = {};
    args.pool = call_bytes_ <= kOneThreadBytesMax ? &one_thread_ : &shared_.pool;
    const Clock::time_point start = Clock::now();
    absl::Status status = variant.launch(args);
    phases_.kernel += Since(start);
    return status;
  }

  absl::StatusOr<Digest> ComputeDigest(const TensorView& tensor) override {
    return rlk::ComputeDigest(tensor,
                              tensor.bytes() <= kOneThreadBytesMax ? &one_thread_ : &shared_.pool);
  }

  absl::StatusOr<HostBytes> StageOut(const MutableTensorView& tensor) override {
    for (const std::shared_ptr<std::byte>& block : outputs_) {
      if (block.get() != tensor.data) continue;
      HostBytes bytes;
      bytes.size = tensor.bytes();
      bytes.pieces.emplace_back(block.get(), static_cast<size_t>(bytes.size));
      bytes.owner = block;
      return bytes;
    }
    return MakeError(absl::StatusCode::kInternal, {Reason::kInternal, {}, {}, {}},
                     "the tensor is no output of this call");
  }

  // Outputs that stay in host memory are written there.
  absl::Status StageOutTo(const MutableTensorView&, std::byte*) override {
    return MakeError(absl::StatusCode::kInternal, {Reason::kInternal, {}, {}, {}},
                     "the output lies on the host already");
  }

  // Everything above ran to its end.
  absl::StatusOr<bool> Done() override { return true; }
  absl::Status Wait() override { return absl::OkStatus(); }
  PhaseNanos Phases() const override { return phases_; }

  void End() override {
    outputs_.clear();
    staging_.Trim();
    workspace_.Trim();
    Count();
  }

 private:
  void Count() {
    const int64_t bytes = staging_.bytes() + workspace_.bytes();
    shared_.bytes_in_use += bytes - counted_;
    counted_ = bytes;
  }

  HostShared& shared_;
  ThreadPool one_thread_{1};
  Scratch staging_{kStageAlignment};
  Scratch workspace_{kStageAlignment};
  std::vector<std::shared_ptr<std::byte>> outputs_;
  PhaseNanos phases_;
  int64_t staging_bytes_ = 0, staged_ = 0, call_bytes_ = 0, counted_ = 0;
};

int ThreadCount(int asked) {
  if (asked > 0) return asked;
  const unsigned cores = std::thread::hardware_concurrency();
  return cores == 0 ? 1 : static_cast<int>(cores);
}

class HostDevice final : public Device {
 public:
  explicit HostDevice(const HostDeviceOptions& options) : shared_(ThreadCount(options.threads)) {
    shared_.memory = HostMemory::Make(options.idle_bytes_max);
    shared_.poison_outputs = options.poison_outputs;
    info_.kind = DeviceKind::kHost;
    info_.name = ProcessorName();
    info_.uuid = "cpu-0";
    info_.multiprocessors = shared_.pool.threads();
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page_bytes = sysconf(_SC_PAGE_SIZE);
    if (pages > 0 && page_bytes > 0) info_.memory_bytes = int64_t{pages} * page_bytes;
    residents_ = HostResidents::Make(info_, options.poison_outputs);
  }

  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<std::unique_ptr<Lane>> NewLane() override {
    return std::unique_ptr<Lane>(std::make_unique<HostLane>(shared_));
  }
  bool runs_inline() const override { return true; }
  bool healthy() const override { return true; }
  int64_t memory_bytes_in_use() const override {
    return shared_.bytes_in_use + shared_.memory->idle_bytes();
  }
  absl::StatusOr<std::shared_ptr<ResidentMemory>> AllocateResident(int64_t bytes) override {
    return residents_->Allocate(bytes);
  }
  absl::StatusOr<std::unique_ptr<Transfer>> NewTransfer() override { return MakeHostTransfer(); }
  int64_t resident_bytes_in_use() const override { return residents_->bytes_in_use(); }

 private:
  DeviceInfo info_;
  std::shared_ptr<HostResidents> residents_;
  HostShared shared_;
};

}  // namespace

std::unique_ptr<Device> MakeHostDevice(const HostDeviceOptions& options) {
  return std::make_unique<HostDevice>(options);
}

}  // namespace rlk::server
