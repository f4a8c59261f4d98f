#include "kernels/cuda/pool.h"

#include "kernels/core/status.h"
#include "kernels/cuda/status.h"

namespace rlk::cuda {

absl::StatusOr<MemoryPool> MemoryPool::Create(int ordinal) {
  MemoryPool pool;
  RLK_ASSIGN_OR_RETURN(pool.stream_, Stream::Create());
  int supported = 0;
  RLK_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, ordinal));
  if (supported == 0) return pool;
  cudaMemPoolProps props = {};
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  props.location.id = ordinal;
  RLK_CUDA_RETURN_IF_ERROR(cudaMemPoolCreate(&pool.pool_, &props));
  // Kept until Trim.
  uint64_t threshold = UINT64_MAX;
  RLK_CUDA_RETURN_IF_ERROR(
      cudaMemPoolSetAttribute(pool.pool_, cudaMemPoolAttrReleaseThreshold, &threshold));
  return pool;
}

MemoryPool::~MemoryPool() {
  if (pool_ != nullptr) cudaMemPoolDestroy(pool_);
}

absl::StatusOr<std::byte*> MemoryPool::TryAllocate(int64_t bytes) {
  void* data = nullptr;
  if (pool_ == nullptr) {
    RLK_CUDA_RETURN_IF_ERROR(cudaMalloc(&data, static_cast<size_t>(bytes)));
    return static_cast<std::byte*>(data);
  }
  RLK_CUDA_RETURN_IF_ERROR(
      cudaMallocFromPoolAsync(&data, static_cast<size_t>(bytes), pool_, stream_.get()));
  RLK_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream_.get()));
  return static_cast<std::byte*>(data);
}

absl::StatusOr<std::byte*> MemoryPool::Allocate(int64_t bytes) {
  if (bytes == 0) return nullptr;
  absl::StatusOr<std::byte*> data = TryAllocate(bytes);
  if (data.ok() || data.status().code() != absl::StatusCode::kResourceExhausted) return data;
  Trim();
  return TryAllocate(bytes);
}

void MemoryPool::Free(std::byte* data) {
  if (data == nullptr) return;
  if (pool_ == nullptr) {
    cudaFree(data);
  } else {
    cudaFreeAsync(data, stream_.get());
  }
}

void MemoryPool::Trim() {
  if (pool_ == nullptr) return;
  cudaStreamSynchronize(stream_.get());
  cudaMemPoolTrimTo(pool_, 0);
}

int64_t MemoryPool::bytes_kept() const {
  if (pool_ == nullptr) return 0;
  uint64_t reserved = 0, used = 0;
  if (cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &reserved) != cudaSuccess ||
      cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemCurrent, &used) != cudaSuccess) {
    return 0;
  }
  return static_cast<int64_t>(reserved - used);
}

void MemoryPool::Leak() {
  pool_ = nullptr;
  stream_.Leak();
}

}  // namespace rlk::cuda
