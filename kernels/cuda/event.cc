#include "kernels/cuda/event.h"

#include "kernels/cuda/status.h"

namespace rlk::cuda {

absl::StatusOr<Event> Event::Create(Timing timing) {
  Event event;
  const unsigned flags =
      cudaEventBlockingSync | (timing == Timing::kOn ? 0u : unsigned{cudaEventDisableTiming});
  RLK_CUDA_RETURN_IF_ERROR(cudaEventCreateWithFlags(&event.handle_, flags));
  return event;
}

Event::~Event() {
  if (handle_ != nullptr) cudaEventDestroy(handle_);
}

absl::Status Event::Record(cudaStream_t stream) {
  RLK_CUDA_RETURN_IF_ERROR(cudaEventRecord(handle_, stream));
  return absl::OkStatus();
}

absl::Status Event::Wait() const {
  RLK_CUDA_RETURN_IF_ERROR(cudaEventSynchronize(handle_));
  return absl::OkStatus();
}

absl::StatusOr<bool> Event::Done() const {
  const cudaError_t error = cudaEventQuery(handle_);
  if (error == cudaSuccess) return true;
  if (error == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  return ToStatus(error, "cudaEventQuery");
}

int64_t ElapsedNanos(const Event& begin, const Event& end) {
  float milliseconds = 0;
  if (cudaEventElapsedTime(&milliseconds, begin.get(), end.get()) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
}

}  // namespace rlk::cuda
