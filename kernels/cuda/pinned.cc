#include "kernels/cuda/pinned.h"

#include <cuda_runtime_api.h>

#include <bit>

#include "kernels/cuda/status.h"

namespace rlk::cuda {
namespace {

constexpr int64_t kBlockBytesMin = int64_t{64} << 10;
// Above this, blocks are not rounded up to a power of two.
constexpr int64_t kRoundedBytesMax = int64_t{64} << 20;

int64_t BlockBytes(int64_t bytes) {
  if (bytes <= kBlockBytesMin) return kBlockBytesMin;
  if (bytes > kRoundedBytesMax) return bytes;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes)));
}

}  // namespace

absl::StatusOr<PinnedBuffer> PinnedBuffer::Allocate(int64_t bytes) {
  PinnedBuffer buffer;
  if (bytes == 0) return buffer;
  void* data = nullptr;
  RLK_CUDA_RETURN_IF_ERROR(cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocPortable));
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.bytes_ = bytes;
  return buffer;
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) cudaFreeHost(data_);
}

void PinnedBuffer::Leak() {
  data_ = nullptr;
  bytes_ = 0;
}

std::shared_ptr<PinnedPool> PinnedPool::Create(int64_t cached_bytes_max) {
  return std::shared_ptr<PinnedPool>(new PinnedPool(cached_bytes_max));
}

std::shared_ptr<PinnedBuffer> PinnedPool::Lend(PinnedBuffer block) {
  auto* lent = new PinnedBuffer(std::move(block));
  return std::shared_ptr<PinnedBuffer>(lent, [pool = shared_from_this()](PinnedBuffer* returned) {
    pool->GiveBack(std::move(*returned));
    delete returned;
  });
}

absl::StatusOr<std::shared_ptr<PinnedBuffer>> PinnedPool::Take(int64_t bytes) {
  {
    std::lock_guard lock(mutex_);
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->bytes() >= bytes && (best == free_.end() || it->bytes() < best->bytes())) best = it;
    }
    if (best != free_.end()) {
      PinnedBuffer block = std::move(*best);
      *best = std::move(free_.back());
      free_.pop_back();
      cached_bytes_ -= block.bytes();
      return Lend(std::move(block));
    }
  }
  auto block = PinnedBuffer::Allocate(BlockBytes(bytes));
  if (!block.ok()) return block.status();
  return Lend(*std::move(block));
}

absl::Status PinnedPool::Reserve(int64_t bytes) {
  auto block = PinnedBuffer::Allocate(BlockBytes(bytes));
  if (!block.ok()) return block.status();
  std::lock_guard lock(mutex_);
  cached_bytes_ += block->bytes();
  free_.push_back(*std::move(block));
  return absl::OkStatus();
}

void PinnedPool::GiveBack(PinnedBuffer block) {
  std::lock_guard lock(mutex_);
  if (leak_) {
    block.Leak();
    return;
  }
  if (cached_bytes_ + block.bytes() > cached_bytes_max_) return;  // freed on return
  cached_bytes_ += block.bytes();
  free_.push_back(std::move(block));
}

void PinnedPool::LeakAll() {
  std::lock_guard lock(mutex_);
  leak_ = true;
  for (PinnedBuffer& block : free_) block.Leak();
  free_.clear();
  cached_bytes_ = 0;
}

}  // namespace rlk::cuda
