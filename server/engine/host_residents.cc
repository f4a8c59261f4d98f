#include "server/engine/host_residents.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "kernels/core/status.h"
#include "server/engine/host_memory.h"

namespace rlk::server {
namespace {

constexpr int kPoisonByte = 0xA5;
// Smaller tensors share pages of malloc's and are cleared.
constexpr int64_t kOwnPagesMin = int64_t{64} << 10;
constexpr int64_t kPageBytes = 4096;
constexpr int64_t kHugePageBytes = int64_t{2} << 20;

absl::Status NoMemory(int64_t bytes) {
  constexpr int64_t kRetryMs = 100;
  return MakeError(absl::StatusCode::kResourceExhausted,
                   {Reason::kDeviceMemoryExhausted,
                    {},
                    std::to_string(bytes) + " bytes",
                    "the memory of the host",
                    kRetryMs},
                   "the host has no memory for the tensor");
}

}  // namespace

class HostResidents::Memory final : public ResidentMemory {
 public:
  Memory(std::shared_ptr<HostResidents> parent, std::byte* data, int64_t bytes, int64_t mapped)
      : parent_(std::move(parent)), data_(data), bytes_(bytes), mapped_(mapped) {
    parent_->bytes_in_use_.fetch_add(bytes_, std::memory_order_relaxed);
  }
  ~Memory() override {
    if (mapped_ > 0) {
      munmap(data_, static_cast<size_t>(mapped_));
    } else {
      std::free(data_);
    }
    parent_->bytes_in_use_.fetch_sub(bytes_, std::memory_order_relaxed);
  }

  std::byte* data() const override { return data_; }
  int64_t bytes() const override { return bytes_; }
  const DeviceInfo& device() const override { return parent_->device_; }

 private:
  const std::shared_ptr<HostResidents> parent_;
  std::byte* const data_;
  const int64_t bytes_;
  const int64_t mapped_;
};

std::shared_ptr<HostResidents> HostResidents::Make(DeviceInfo device, bool poison) {
  return std::shared_ptr<HostResidents>(new HostResidents(std::move(device), poison));
}

absl::StatusOr<std::shared_ptr<ResidentMemory>> HostResidents::Allocate(int64_t bytes) {
  std::byte* data = nullptr;
  int64_t mapped = 0;
  if (bytes >= kOwnPagesMin) {
    if (bytes > INT64_MAX - kHugePageBytes) return NoMemory(bytes);
    mapped = AlignUp(bytes, bytes >= kHugePageBytes ? kHugePageBytes : kPageBytes);
    void* pages = mmap(nullptr, static_cast<size_t>(mapped), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return NoMemory(bytes);
    data = static_cast<std::byte*>(pages);
    // A hint: one fault for 2 MiB.
    if (mapped >= kHugePageBytes) (void)madvise(data, static_cast<size_t>(mapped), MADV_HUGEPAGE);
  } else if (bytes > 0) {
    const int64_t size = AlignUp(bytes, kStageAlignment);
    data = static_cast<std::byte*>(std::aligned_alloc(kStageAlignment, static_cast<size_t>(size)));
    if (data == nullptr) return NoMemory(bytes);
    std::memset(data, 0, static_cast<size_t>(size));
  }
  if (poison_ && bytes > 0) std::memset(data, kPoisonByte, static_cast<size_t>(bytes));
  return std::shared_ptr<ResidentMemory>(
      std::make_shared<Memory>(shared_from_this(), data, bytes, mapped));
}

namespace {

class HostTransfer final : public Transfer {
 public:
  absl::Status Write(ResidentMemory& memory, int64_t offset,
                     std::span<const std::span<const std::byte>> pieces) override {
    std::byte* to = memory.data() + offset;
    for (const std::span<const std::byte>& piece : pieces) {
      if (piece.empty()) continue;
      std::memcpy(to, piece.data(), piece.size());
      to += piece.size();
    }
    return absl::OkStatus();
  }
  absl::Status Flush() override { return absl::OkStatus(); }
  absl::StatusOr<HostBytes> Read(const std::shared_ptr<ResidentMemory>& memory, int64_t offset,
                                 int64_t size) override {
    HostBytes bytes;
    bytes.size = size;
    bytes.owner = memory;
    if (size > 0) bytes.pieces.emplace_back(memory->data() + offset, static_cast<size_t>(size));
    return bytes;
  }
};

}  // namespace

std::unique_ptr<Transfer> MakeHostTransfer() { return std::make_unique<HostTransfer>(); }

}  // namespace rlk::server
