// Pinned memory through which payload pieces go to the device.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/cuda/event.h"
#include "kernels/cuda/pinned.h"

namespace rlk::cuda {

// Two halves: one is filled while the other is copied. Small payloads of one call share a half, so
// nothing waits; large ones go through piece by piece. Not thread-safe; one stream.
class UploadStaging {
 public:
  // `bytes` in both halves together. On the current device.
  absl::Status Create(int64_t bytes);

  // Whatever was enqueued before is done: the memory may be used again.
  void Reset();

  // Gathers the pieces and enqueues their copies to device memory at `to`. Blocks only when both
  // halves are full. The pieces are not read after this returns.
  absl::Status Upload(std::span<const std::span<const std::byte>> pieces, std::byte* to,
                      cudaStream_t stream);

  // For a context that is dead.
  void Leak();

 private:
  struct Half {
    Event copied;
    bool in_flight = false;
  };

  std::byte* base() const { return memory_.data() + static_cast<int64_t>(current_) * half_bytes_; }
  absl::Status Flush(int64_t begin, std::byte* to, cudaStream_t stream);
  absl::Status NextHalf(cudaStream_t stream);

  PinnedBuffer memory_;
  std::array<Half, 2> halves_;
  int64_t half_bytes_ = 0;
  size_t current_ = 0;
  // Bytes of the current half that are filled.
  int64_t used_ = 0;
};

}  // namespace rlk::cuda
