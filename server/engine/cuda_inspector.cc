#include "server/engine/cuda_inspector.h"

#if defined(RLK_WITH_CUDA)

#include <cuda_runtime_api.h>

#include <array>
#include <cstring>
#include <mutex>
#include <utility>

#include "kernels/compare/compare_cuda.h"
#include "kernels/core/status.h"
#include "kernels/cuda/buffer.h"
#include "kernels/cuda/device_guard.h"
#include "kernels/cuda/pinned.h"
#include "kernels/cuda/status.h"
#include "kernels/cuda/stream.h"
#include "kernels/digest/digest_cuda.h"

namespace rlk::server {
namespace {

constexpr int64_t kNodeBytes = 16;
// Scratch that stays for the next look: what tensors of 1 GiB need, and most rows.
constexpr int64_t kKeptBytes = int64_t{8} << 20;

class CudaInspector final : public Inspector {
 public:
  explicit CudaInspector(std::shared_ptr<CudaAccount> account) : account_(std::move(account)) {}

  ~CudaInspector() override {
    const cuda::DeviceGuard guard(account_->ordinal);
    account_->Give(scratch_.bytes());
    if (account_->healthy && guard.error() == cudaSuccess) return;
    // Buffers of a dead context are leaked, not freed.
    stream_.Leak();
    scratch_.Leak();
    pinned_.Leak();
  }

  absl::StatusOr<Digest> ComputeDigest(const TensorView& tensor) override {
    if (tensor.bytes() == 0) return DigestRoot(tensor.dtype, tensor.shape, nullptr);
    std::array<uint8_t, 16> node;
    RLK_RETURN_IF_ERROR(Look(DigestScratchBytes(tensor.bytes()), kNodeBytes, [&]() -> absl::Status {
      RLK_ASSIGN_OR_RETURN(const std::byte* last,
                           EnqueueDigest(tensor.data, tensor.bytes(), scratch(), stream_.ref()));
      RLK_RETURN_IF_ERROR(Fetch(last, kNodeBytes));
      std::memcpy(node.data(), pinned_.data(), node.size());
      return absl::OkStatus();
    }));
    return DigestRoot(tensor.dtype, tensor.shape, &node);
  }

  absl::StatusOr<std::vector<Digest>> ComputeRowDigests(const TensorView& tensor) override {
    const int rank = tensor.shape.rank();
    const int64_t columns = rank == 0 ? 1 : tensor.shape[rank - 1];
    if (columns == 0) return rlk::ComputeRowDigests(tensor);
    const int64_t rows = tensor.elements() / columns;
    std::vector<Digest> digests(static_cast<size_t>(rows));
    if (rows == 0) return digests;
    const int64_t row_bytes = columns * DTypeSize(tensor.dtype);
    RLK_RETURN_IF_ERROR(
        Look(RowDigestScratchBytes(rows, row_bytes), rows * kNodeBytes, [&]() -> absl::Status {
          RLK_ASSIGN_OR_RETURN(const std::byte* roots,
                               EnqueueRowDigests(tensor.dtype, columns, tensor.data, rows,
                                                 row_bytes, scratch(), stream_.ref()));
          RLK_RETURN_IF_ERROR(Fetch(roots, rows * kNodeBytes));
          for (size_t r = 0; r < digests.size(); ++r) {
            std::memcpy(digests[r].bytes.data(),
                        pinned_.data() + static_cast<int64_t>(r) * kNodeBytes, kNodeBytes);
          }
          return absl::OkStatus();
        }));
    return digests;
  }

  absl::StatusOr<compare::Stats> Compare(const compare::Spec& spec, const TensorView& left,
                                         const TensorView& right) override {
    compare::Stats stats;
    const int64_t elements = left.elements();
    const int64_t bytes = compare::CompareScratchBytes(elements);
    RLK_RETURN_IF_ERROR(Look(bytes, bytes, [&]() -> absl::Status {
      RLK_ASSIGN_OR_RETURN(stats, compare::CompareCuda(spec, left.data, right.data, elements,
                                                       scratch(), pinned(), stream_.ref()));
      return absl::OkStatus();
    }));
    return stats;
  }

  absl::StatusOr<compare::RowStats> CompareRows(const TensorView& left, const TensorView& right,
                                                int rows_max) override {
    const int rank = left.shape.rank();
    const int64_t columns = rank == 0 ? 1 : left.shape[rank - 1];
    const int64_t rows = columns == 0 ? 0 : left.elements() / columns;
    compare::RowStats stats;
    const int64_t bytes = compare::RowScratchBytes(rows);
    RLK_RETURN_IF_ERROR(Look(bytes, bytes, [&]() -> absl::Status {
      RLK_ASSIGN_OR_RETURN(
          stats, compare::CompareRowsCuda(left.dtype, left.data, right.data, rows, columns,
                                          rows_max, scratch(), pinned(), stream_.ref()));
      return absl::OkStatus();
    }));
    return stats;
  }

 private:
  std::span<std::byte> scratch() const {
    return {scratch_.data(), static_cast<size_t>(scratch_.bytes())};
  }
  std::span<std::byte> pinned() const {
    return {pinned_.data(), static_cast<size_t>(pinned_.bytes())};
  }

  // Runs `work` on this device, alone, with so much memory.
  template <typename Work>
  absl::Status Look(int64_t scratch_bytes, int64_t pinned_bytes, Work work) {
    const cuda::DeviceGuard guard(account_->ordinal);
    RLK_RETURN_IF_ERROR(account_->Note(cuda::ToStatus(guard.error(), "cudaSetDevice")));
    const std::lock_guard lock(mutex_);
    absl::Status status = Reserve(scratch_bytes, pinned_bytes);
    if (status.ok()) status = work();
    Shrink();
    return account_->Note(std::move(status));
  }

  absl::Status Reserve(int64_t scratch_bytes, int64_t pinned_bytes) {
    if (stream_.get() == nullptr) {
      RLK_ASSIGN_OR_RETURN(stream_, cuda::Stream::Create());
    }
    if (pinned_.bytes() < pinned_bytes) {
      RLK_ASSIGN_OR_RETURN(pinned_, cuda::PinnedBuffer::Allocate(pinned_bytes));
    }
    if (scratch_.bytes() >= scratch_bytes) return absl::OkStatus();
    Free();
    if (!account_->Take(scratch_bytes)) {
      return CudaAccount::Exhausted(scratch_bytes, account_->bytes_max - account_->bytes_in_use);
    }
    absl::StatusOr<cuda::DeviceBuffer> buffer = cuda::DeviceBuffer::Allocate(scratch_bytes);
    account_->Give(scratch_bytes);
    RLK_RETURN_IF_ERROR(buffer.status());
    scratch_ = *std::move(buffer);
    // The account counts what the buffer says that it has.
    account_->Give(-scratch_.bytes());
    return absl::OkStatus();
  }

  void Free() {
    account_->Give(scratch_.bytes());
    if (!account_->healthy) {
      scratch_.Leak();
    } else {
      scratch_.Free();
    }
    scratch_ = cuda::DeviceBuffer();
  }

  void Shrink() {
    if (scratch_.bytes() > kKeptBytes) Free();
    if (pinned_.bytes() > kKeptBytes && account_->healthy) pinned_ = cuda::PinnedBuffer();
  }

  absl::Status Fetch(const std::byte* from, int64_t bytes) {
    RLK_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(pinned_.data(), from, static_cast<size_t>(bytes),
                                             cudaMemcpyDeviceToHost, stream_.get()));
    RLK_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream_.get()));
    return absl::OkStatus();
  }

  const std::shared_ptr<CudaAccount> account_;
  std::mutex mutex_;
  cuda::Stream stream_;         // guarded by mutex_, like the rest
  cuda::DeviceBuffer scratch_;  // its bytes are taken from the account
  cuda::PinnedBuffer pinned_;
};

}  // namespace

std::unique_ptr<Inspector> MakeCudaInspector(std::shared_ptr<CudaAccount> account) {
  return std::make_unique<CudaInspector>(std::move(account));
}

}  // namespace rlk::server

#endif  // RLK_WITH_CUDA
