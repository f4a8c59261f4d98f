#include "server/engine/cuda_sharing.h"

#if defined(RLK_WITH_CUDA)

#include <cuda_runtime_api.h>

#include <atomic>
#include <mutex>
#include <utility>

#include "kernels/core/status.h"
#include "kernels/cuda/device_guard.h"
#include "kernels/cuda/shared_buffer.h"
#include "kernels/cuda/status.h"
#include "server/engine/host_memory.h"

namespace rlk::server {
namespace {

class Sharing final : public CudaSharing, public std::enable_shared_from_this<Sharing> {
 public:
  Sharing(DeviceInfo device, std::shared_ptr<CudaAccount> account)
      : device_(std::move(device)), account_(std::move(account)) {}

  absl::StatusOr<SharedMemory> Allocate(int64_t bytes) override;
  std::string problem() override {
    Probe();
    return problem_;
  }
  int64_t granularity() override {
    Probe();
    return granularity_;
  }
  int64_t bytes_in_use() const override { return bytes_.load(std::memory_order_relaxed); }
  absl::StatusOr<std::shared_ptr<const void>> LockPages(std::byte* data, int64_t bytes) override;

  const DeviceInfo& device() const { return device_; }
  CudaAccount& account() const { return *account_; }
  void Freed(int64_t bytes) {
    bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    account_->Give(bytes);
  }

 private:
  absl::StatusOr<SharedMemory> Make(int64_t bytes);
  // What really works is found by doing it once.
  void Probe();

  const DeviceInfo device_;
  const std::shared_ptr<CudaAccount> account_;
  std::once_flag probed_;
  std::string problem_;
  int64_t granularity_ = int64_t{2} << 20;
  std::atomic<int64_t> bytes_{0};
};

class Memory final : public ResidentMemory {
 public:
  Memory(std::shared_ptr<Sharing> parent, std::unique_ptr<cuda::SharedBuffer> buffer)
      : parent_(std::move(parent)), buffer_(std::move(buffer)) {}
  ~Memory() override {
    const int64_t bytes = buffer_->bytes();
    {
      const cuda::DeviceGuard guard(parent_->account().ordinal);
      if (!parent_->account().healthy || guard.error() != cudaSuccess) buffer_->Leak();
      buffer_.reset();
    }
    parent_->Freed(bytes);
  }
  std::byte* data() const override { return buffer_->data(); }
  int64_t bytes() const override { return buffer_->bytes(); }
  const DeviceInfo& device() const override { return parent_->device(); }

 private:
  const std::shared_ptr<Sharing> parent_;
  std::unique_ptr<cuda::SharedBuffer> buffer_;
};

absl::StatusOr<SharedMemory> Sharing::Make(int64_t bytes) {
  const cuda::DeviceGuard guard(account_->ordinal);
  RLK_RETURN_IF_ERROR(account_->Note(cuda::ToStatus(guard.error(), "cudaSetDevice")));
  absl::StatusOr<std::unique_ptr<cuda::SharedBuffer>> buffer =
      cuda::SharedBuffer::Allocate(account_->ordinal, bytes);
  if (!buffer.ok()) return account_->Note(buffer.status());
  SharedMemory made;
  RLK_ASSIGN_OR_RETURN(const int descriptor, (*buffer)->Export());
  made.descriptor = OwnedFd(descriptor);
  const int64_t size = (*buffer)->bytes();
  bytes_.fetch_add(size, std::memory_order_relaxed);
  made.memory = std::make_shared<Memory>(shared_from_this(), *std::move(buffer));
  return made;
}

absl::StatusOr<SharedMemory> Sharing::Allocate(int64_t bytes) {
  const int64_t size = AlignUp(bytes, granularity());
  if (!account_->Take(size)) {
    return CudaAccount::Exhausted(size, account_->bytes_max - account_->bytes_in_use);
  }
  absl::StatusOr<SharedMemory> made = Make(size);
  // What was made gives back what was taken, when it goes.
  if (!made.ok()) account_->Give(size);
  return made;
}

void Sharing::Probe() {
  std::call_once(probed_, [this] {
    const cuda::DeviceGuard guard(account_->ordinal);
    const absl::StatusOr<int64_t> unit = cuda::SharedBuffer::Granularity(account_->ordinal);
    absl::Status status = cuda::ToStatus(guard.error(), "cudaSetDevice");
    if (status.ok()) status = unit.status();
    if (status.ok()) {
      granularity_ = *unit;
      const auto buffer = cuda::SharedBuffer::Allocate(account_->ordinal, 1);
      status = buffer.status();
      if (status.ok()) {
        const absl::StatusOr<int> descriptor = (*buffer)->Export();
        status = descriptor.status();
        if (status.ok()) const OwnedFd closed(*descriptor);
      }
    }
    problem_ = std::string(status.message());
    cudaGetLastError();
  });
}

absl::StatusOr<std::shared_ptr<const void>> Sharing::LockPages(std::byte* data, int64_t bytes) {
  const cuda::DeviceGuard guard(account_->ordinal);
  RLK_RETURN_IF_ERROR(account_->Note(cuda::ToStatus(guard.error(), "cudaSetDevice")));
  absl::StatusOr<std::unique_ptr<cuda::PageLock>> lock = cuda::PageLock::Lock(data, bytes);
  if (!lock.ok()) return account_->Note(lock.status());
  return std::shared_ptr<const void>(lock->release(), [account = account_](const void* held) {
    std::unique_ptr<cuda::PageLock> owned(static_cast<cuda::PageLock*>(const_cast<void*>(held)));
    const cuda::DeviceGuard unlock(account->ordinal);
    // A dead context cannot be asked whether it still reads.
    if (!account->healthy || unlock.error() != cudaSuccess) owned->Leak();
    owned.reset();
  });
}

}  // namespace

std::shared_ptr<CudaSharing> CudaSharing::Make(DeviceInfo device,
                                               std::shared_ptr<CudaAccount> account) {
  return std::make_shared<Sharing>(std::move(device), std::move(account));
}

}  // namespace rlk::server

#endif  // RLK_WITH_CUDA
