// Owner of a stream that never synchronises with the default stream.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "absl/status/statusor.h"
#include "kernels/core/stream_ref.h"

namespace rlk::cuda {

class Stream {
 public:
  // On the current device.
  static absl::StatusOr<Stream> Create();

  Stream() = default;
  Stream(Stream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Stream();

  cudaStream_t get() const { return handle_; }
  StreamRef ref() const { return {handle_}; }
  // Gives the handle up without destroying it: for a context that is dead.
  void Leak() { handle_ = nullptr; }

 private:
  cudaStream_t handle_ = nullptr;
};

// The CUDA stream behind a StreamRef. The default stream is never used, so null is a bug.
cudaStream_t CudaStream(StreamRef stream);

}  // namespace rlk::cuda
