#include "server/engine/cuda_residents.h"

#if defined(RLK_WITH_CUDA)

#include <cuda_runtime_api.h>

#include <array>
#include <chrono>
#include <mutex>
#include <string>
#include <utility>

#include "kernels/core/status.h"
#include "kernels/cuda/device_guard.h"
#include "kernels/cuda/pinned.h"
#include "kernels/cuda/pool.h"
#include "kernels/cuda/status.h"
#include "kernels/cuda/stream.h"
#include "kernels/cuda/upload.h"

namespace rlk::server {
namespace {

constexpr int kPoisonByte = 0xA5;
// Transfers share these: each has a stream and pinned memory, made once, because page-locking waits
// for the device.
constexpr size_t kSlots = 4;
constexpr int64_t kSlotBytes = int64_t{4} << 20;
// Tensors are freed and allocated at the rate of calls whose outputs stay: their memory is kept for
// this long, and asking the driver each time would take longer than the calls.
constexpr std::chrono::seconds kKeptFor(2);
// Pinned blocks that wait for the next download.
constexpr int64_t kReadBytesKept = int64_t{16} << 20;

struct Slot {
  std::mutex mutex;
  bool made = false;  // guarded by mutex, like the rest
  cuda::Stream stream;
  cuda::UploadStaging staging;
};

class Residents final : public CudaResidents, public std::enable_shared_from_this<Residents> {
 public:
  Residents(DeviceInfo device, std::shared_ptr<CudaAccount> account, bool poison)
      : device_(std::move(device)),
        account_(std::move(account)),
        poison_(poison),
        reads_(cuda::PinnedPool::Create(kReadBytesKept)) {}

  ~Residents() override {
    const cuda::DeviceGuard guard(account_->ordinal);
    if (account_->healthy && guard.error() == cudaSuccess) return;
    // Buffers of a dead context are leaked, not freed.
    pool_.Leak();
    reads_->LeakAll();
    for (Slot& slot : slots_) {
      slot.stream.Leak();
      slot.staging.Leak();
    }
  }

  absl::StatusOr<std::shared_ptr<ResidentMemory>> Allocate(int64_t bytes) override;
  absl::StatusOr<std::unique_ptr<Transfer>> NewTransfer() override;
  int64_t bytes_in_use() const override { return bytes_.load(std::memory_order_relaxed); }
  void ReleaseIdle() override;

  const DeviceInfo& device() const { return device_; }
  CudaAccount& account() const { return *account_; }
  // On this device; `data` is null where it is dead.
  void Free(std::byte* data, int64_t bytes);

  absl::Status Write(size_t slot, std::byte* to,
                     std::span<const std::span<const std::byte>> pieces);
  absl::Status Flush(size_t slot);
  absl::StatusOr<HostBytes> Read(size_t slot, const std::byte* from, int64_t size);

 private:
  using Clock = std::chrono::steady_clock;

  absl::Status PreparePool();
  void Touch() { used_.store(Clock::now().time_since_epoch(), std::memory_order_relaxed); }

  // Runs `work` on the slot, on this device, with the slot's mutex held.
  template <typename Work>
  absl::Status OnSlot(size_t slot, Work work);

  const DeviceInfo device_;
  const std::shared_ptr<CudaAccount> account_;
  const bool poison_;
  const std::shared_ptr<cuda::PinnedPool> reads_;
  std::mutex pool_mutex_;  // of its creation
  std::atomic<bool> pool_made_{false};
  cuda::MemoryPool pool_;
  std::atomic<Clock::duration> used_{};  // the last time that the pool was
  std::array<Slot, kSlots> slots_;
  std::atomic<size_t> next_slot_{0};
  std::atomic<int64_t> bytes_{0};
};

class Memory final : public ResidentMemory {
 public:
  Memory(std::shared_ptr<Residents> parent, std::byte* data, int64_t bytes)
      : parent_(std::move(parent)), data_(data), bytes_(bytes) {}
  ~Memory() override {
    const cuda::DeviceGuard guard(parent_->account().ordinal);
    const bool alive = parent_->account().healthy && guard.error() == cudaSuccess;
    parent_->Free(alive ? data_ : nullptr, bytes_);
  }
  std::byte* data() const override { return data_; }
  int64_t bytes() const override { return bytes_; }
  const DeviceInfo& device() const override { return parent_->device(); }

 private:
  const std::shared_ptr<Residents> parent_;
  std::byte* const data_;
  const int64_t bytes_;
};

class CudaTransfer final : public Transfer {
 public:
  CudaTransfer(std::shared_ptr<Residents> parent, size_t slot)
      : parent_(std::move(parent)), slot_(slot) {}
  absl::Status Write(ResidentMemory& memory, int64_t offset,
                     std::span<const std::span<const std::byte>> pieces) override {
    return parent_->Write(slot_, memory.data() + offset, pieces);
  }
  absl::Status Flush() override { return parent_->Flush(slot_); }
  absl::StatusOr<HostBytes> Read(const std::shared_ptr<ResidentMemory>& memory, int64_t offset,
                                 int64_t size) override {
    if (size == 0) return HostBytes();
    return parent_->Read(slot_, memory->data() + offset, size);
  }

 private:
  const std::shared_ptr<Residents> parent_;
  const size_t slot_;
};

template <typename Work>
absl::Status Residents::OnSlot(size_t index, Work work) {
  const cuda::DeviceGuard guard(account_->ordinal);
  RLK_RETURN_IF_ERROR(account_->Note(cuda::ToStatus(guard.error(), "cudaSetDevice")));
  Slot& slot = slots_[index];
  const std::lock_guard lock(slot.mutex);
  if (!slot.made) {
    RLK_ASSIGN_OR_RETURN(slot.stream, cuda::Stream::Create());
    RLK_RETURN_IF_ERROR(slot.staging.Create(kSlotBytes));
    slot.made = true;
  }
  return account_->Note(work(slot));
}

absl::Status Residents::PreparePool() {
  if (pool_made_.load(std::memory_order_acquire)) return absl::OkStatus();
  const std::lock_guard lock(pool_mutex_);
  if (pool_made_.load(std::memory_order_relaxed)) return absl::OkStatus();
  absl::StatusOr<cuda::MemoryPool> pool = cuda::MemoryPool::Create(account_->ordinal);
  if (!pool.ok()) return account_->Note(pool.status());
  pool_ = *std::move(pool);
  pool_made_.store(true, std::memory_order_release);
  return absl::OkStatus();
}

void Residents::Free(std::byte* data, int64_t bytes) {
  pool_.Free(data);
  Touch();
  bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  account_->Give(bytes);
}

void Residents::ReleaseIdle() {
  if (!pool_made_.load(std::memory_order_acquire) || !account_->healthy) return;
  if (Clock::now().time_since_epoch() - used_.load(std::memory_order_relaxed) < kKeptFor) return;
  const cuda::DeviceGuard guard(account_->ordinal);
  if (guard.error() == cudaSuccess && pool_.bytes_kept() > 0) pool_.Trim();
}

absl::StatusOr<std::shared_ptr<ResidentMemory>> Residents::Allocate(int64_t bytes) {
  const cuda::DeviceGuard guard(account_->ordinal);
  RLK_RETURN_IF_ERROR(account_->Note(cuda::ToStatus(guard.error(), "cudaSetDevice")));
  RLK_RETURN_IF_ERROR(PreparePool());
  if (!account_->Take(bytes)) {
    return CudaAccount::Exhausted(bytes, account_->bytes_max - account_->bytes_in_use);
  }
  // What is kept counts as taken from the device.
  if (account_->bytes_in_use + pool_.bytes_kept() > account_->bytes_max) pool_.Trim();
  absl::StatusOr<std::byte*> data = pool_.Allocate(bytes);
  Touch();
  if (!data.ok()) {
    account_->Give(bytes);
    return account_->Note(data.status());
  }
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
  auto memory = std::make_shared<Memory>(shared_from_this(), *data, bytes);
  if (poison_ && bytes > 0) {
    std::byte* const data = memory->data();
    RLK_RETURN_IF_ERROR(OnSlot(0, [data, bytes](Slot& slot) {
      cudaError_t error =
          cudaMemsetAsync(data, kPoisonByte, static_cast<size_t>(bytes), slot.stream.get());
      if (error == cudaSuccess) error = cudaStreamSynchronize(slot.stream.get());
      return cuda::ToStatus(error, "cudaMemsetAsync");
    }));
  }
  return std::shared_ptr<ResidentMemory>(std::move(memory));
}

absl::StatusOr<std::unique_ptr<Transfer>> Residents::NewTransfer() {
  const size_t slot = next_slot_.fetch_add(1, std::memory_order_relaxed) % kSlots;
  return std::unique_ptr<Transfer>(std::make_unique<CudaTransfer>(shared_from_this(), slot));
}

absl::Status Residents::Write(size_t index, std::byte* to,
                              std::span<const std::span<const std::byte>> pieces) {
  return OnSlot(index, [to, pieces](Slot& slot) {
    return slot.staging.Upload(pieces, to, slot.stream.get());
  });
}

absl::Status Residents::Flush(size_t index) {
  return OnSlot(index, [](Slot& slot) {
    return cuda::ToStatus(cudaStreamSynchronize(slot.stream.get()), "cudaStreamSynchronize");
  });
}

absl::StatusOr<HostBytes> Residents::Read(size_t index, const std::byte* from, int64_t size) {
  HostBytes bytes;
  RLK_RETURN_IF_ERROR(OnSlot(index, [&](Slot& slot) -> absl::Status {
    RLK_ASSIGN_OR_RETURN(auto block, reads_->Take(size));
    cudaError_t error = cudaMemcpyAsync(block->data(), from, static_cast<size_t>(size),
                                        cudaMemcpyDeviceToHost, slot.stream.get());
    if (error == cudaSuccess) error = cudaStreamSynchronize(slot.stream.get());
    RLK_RETURN_IF_ERROR(cuda::ToStatus(error, "cudaMemcpyAsync"));
    bytes.size = size;
    bytes.pieces.emplace_back(block->data(), static_cast<size_t>(size));
    bytes.owner = std::move(block);
    return absl::OkStatus();
  }));
  return bytes;
}

}  // namespace

absl::Status CudaAccount::Exhausted(int64_t bytes, int64_t free) {
  constexpr int64_t kRetryMs = 100;
  return MakeError(absl::StatusCode::kResourceExhausted,
                   {Reason::kDeviceMemoryExhausted, "device", std::to_string(bytes) + " bytes",
                    std::to_string(free) + " bytes free of device_bytes_max", kRetryMs},
                   "more device memory is needed than the server may take");
}

std::shared_ptr<CudaResidents> CudaResidents::Make(DeviceInfo device,
                                                   std::shared_ptr<CudaAccount> account,
                                                   bool poison) {
  return std::make_shared<Residents>(std::move(device), std::move(account), poison);
}

}  // namespace rlk::server

#endif  // RLK_WITH_CUDA
