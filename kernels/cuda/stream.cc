#include "kernels/cuda/stream.h"

#include <cstdio>
#include <cstdlib>

#include "kernels/cuda/status.h"

namespace rlk::cuda {

absl::StatusOr<Stream> Stream::Create() {
  Stream stream;
  RLK_CUDA_RETURN_IF_ERROR(cudaStreamCreateWithFlags(&stream.handle_, cudaStreamNonBlocking));
  return stream;
}

Stream::~Stream() {
  if (handle_ != nullptr) cudaStreamDestroy(handle_);
}

cudaStream_t CudaStream(StreamRef stream) {
  if (stream.handle == nullptr) {
    std::fprintf(stderr, "rlk: a CUDA kernel was launched without a stream\n");
    std::abort();
  }
  return static_cast<cudaStream_t>(stream.handle);
}

}  // namespace rlk::cuda
