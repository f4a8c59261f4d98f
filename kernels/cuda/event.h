// Owner of an event. Waiting on it blocks the thread instead of spinning.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rlk::cuda {

class Event {
 public:
  enum class Timing : bool { kOff, kOn };

  // On the current device.
  static absl::StatusOr<Event> Create(Timing timing);

  Event() = default;
  Event(Event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Event();

  cudaEvent_t get() const { return handle_; }
  absl::Status Record(cudaStream_t stream);
  // Blocks until everything before the last Record is done; at once when there was none.
  absl::Status Wait() const;
  // True when everything before the last Record is done.
  absl::StatusOr<bool> Done() const;
  void Leak() { handle_ = nullptr; }

 private:
  cudaEvent_t handle_ = nullptr;
};

// Nanoseconds on the device between two recorded and finished events; 0 where CUDA gives none.
int64_t ElapsedNanos(const Event& begin, const Event& end);

}  // namespace rlk::cuda
