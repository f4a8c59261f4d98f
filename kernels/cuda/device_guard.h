// Makes a device current for a scope and restores the one before.
#pragma once

#include <cuda_runtime_api.h>

namespace rlk::cuda {

class DeviceGuard {
 public:
  explicit DeviceGuard(int ordinal) {
    if (cudaGetDevice(&previous_) != cudaSuccess) previous_ = -1;
    if (previous_ != ordinal) error_ = cudaSetDevice(ordinal);
    changed_ = previous_ != ordinal && error_ == cudaSuccess;
  }
  ~DeviceGuard() {
    if (changed_ && previous_ >= 0) cudaSetDevice(previous_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

  // Of making the device current; nothing may be done on it unless this is cudaSuccess.
  cudaError_t error() const { return error_; }

 private:
  int previous_ = -1;
  bool changed_ = false;
  cudaError_t error_ = cudaSuccess;
};

}  // namespace rlk::cuda
