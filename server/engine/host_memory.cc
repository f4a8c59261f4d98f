#include "server/engine/host_memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "kernels/core/status.h"

namespace rlk::server {
namespace {

// Smaller blocks come from malloc, whose own caches serve them.
constexpr int64_t kRecycledBytesMin = int64_t{256} << 10;
// From here on the kernel is asked for huge pages: one fault for 2 MiB.
constexpr int64_t kHugePageBytes = int64_t{2} << 20;

std::byte* AllocateBlock(int64_t bytes, int64_t alignment) {
  return static_cast<std::byte*>(
      std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(bytes)));
}

}  // namespace

std::shared_ptr<HostMemory> HostMemory::Make(int64_t idle_bytes_max) {
  return std::shared_ptr<HostMemory>(new HostMemory(idle_bytes_max));
}

HostMemory::~HostMemory() {
  for (const Block& block : idle_) std::free(block.data);
}

std::shared_ptr<std::byte> HostMemory::Allocate(int64_t bytes) {
  if (bytes < kRecycledBytesMin) {
    std::byte* data = AllocateBlock(AlignUp(bytes > 0 ? bytes : 1, kHostAlignment), kHostAlignment);
    if (data == nullptr) return nullptr;
    return std::shared_ptr<std::byte>(data, [](std::byte* block) { std::free(block); });
  }
  Block block{nullptr, 0};
  {
    std::lock_guard<std::mutex> lock(mutex_);
    // The newest block that fits without wasting more than it holds: its pages are warm.
    for (size_t i = idle_.size(); i-- > 0;) {
      if (idle_[i].bytes < bytes || idle_[i].bytes / 2 > bytes) continue;
      block = idle_[i];
      idle_.erase(idle_.begin() + static_cast<ptrdiff_t>(i));
      idle_bytes_ -= block.bytes;
      break;
    }
  }
  if (block.data == nullptr) {
    const int64_t alignment = bytes >= kHugePageBytes ? kHugePageBytes : 4096;
    block.bytes = AlignUp(bytes, alignment);
    block.data = AllocateBlock(block.bytes, alignment);
    if (block.data == nullptr) return nullptr;
    if (alignment == kHugePageBytes) {
      // A hint; the block is good without it.
      (void)madvise(block.data, static_cast<size_t>(block.bytes), MADV_HUGEPAGE);
    }
  }
  return std::shared_ptr<std::byte>(
      block.data, [self = shared_from_this(), block](std::byte*) { self->Recycle(block); });
}

void HostMemory::Recycle(Block block) {
  std::vector<Block> dropped;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (block.bytes > idle_bytes_max_) {
      dropped.push_back(block);
    } else {
      while (idle_bytes_ + block.bytes > idle_bytes_max_) {
        dropped.push_back(idle_.front());
        idle_bytes_ -= idle_.front().bytes;
        idle_.erase(idle_.begin());
      }
      idle_.push_back(block);
      idle_bytes_ += block.bytes;
    }
  }
  for (const Block& old : dropped) std::free(old.data);
}

int64_t HostMemory::idle_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return idle_bytes_;
}

void Gather(const HostBytes& bytes, std::byte* to) {
  for (const std::span<const std::byte>& piece : bytes.pieces) {
    if (piece.empty()) continue;
    std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
}

const std::byte* InPlace(const HostBytes& bytes, int64_t alignment) {
  const std::span<const std::byte>* only = nullptr;
  for (const std::span<const std::byte>& piece : bytes.pieces) {
    if (piece.empty()) continue;
    if (only != nullptr) return nullptr;
    only = &piece;
  }
  if (only == nullptr) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(only->data());
  return address % static_cast<uintptr_t>(alignment) == 0 ? only->data() : nullptr;
}

namespace {

Contiguous Copy(const HostBytes& bytes, int64_t alignment) {
  if (bytes.size == 0) return {};
  const int64_t wide = alignment > kHostAlignment ? alignment : kHostAlignment;
  std::byte* block = AllocateBlock(AlignUp(bytes.size, wide), wide);
  if (block == nullptr) return {};
  Gather(bytes, block);
  return {block, std::shared_ptr<const void>(block, [](void* old) { std::free(old); })};
}

}  // namespace

Contiguous MakeContiguous(const HostBytes& bytes, int64_t alignment) {
  if (const std::byte* data = InPlace(bytes, alignment)) return {data, nullptr};
  return Copy(bytes, alignment);
}

absl::StatusOr<HostBytes> CopyBytes(const HostBytes& bytes, int64_t alignment) {
  Contiguous block = Copy(bytes, alignment);
  if (block.data == nullptr && bytes.size > 0) return HostMemoryError(bytes.size);
  HostBytes copy;
  copy.size = bytes.size;
  copy.owner = std::move(block.copy);
  if (bytes.size > 0) copy.pieces.emplace_back(block.data, static_cast<size_t>(bytes.size));
  return copy;
}

absl::Status HostMemoryError(int64_t bytes) {
  constexpr int64_t kRetryMs = 100;
  return MakeError(absl::StatusCode::kResourceExhausted,
                   {Reason::kBytesExhausted, "host memory", std::to_string(bytes) + " bytes",
                    "the memory of the host", kRetryMs},
                   "the host has no memory for the call");
}

}  // namespace rlk::server
