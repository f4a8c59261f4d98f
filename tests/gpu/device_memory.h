// Device memory and streams for tests: a failing call fails the test.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/buffer.h"
#include "kernels/cuda/stream.h"

namespace rlk::gpu_test {

// Aborts with CUDA's words; for what no test can go on without.
void Check(cudaError_t error, const char* what);
#define RLK_GPU_CHECK(call) ::rlk::gpu_test::Check((call), #call)

cuda::Stream NewStream();
cuda::DeviceBuffer NewBuffer(int64_t bytes);

// Synchronous copies on a stream of their own.
void ToDevice(void* device, const void* host, int64_t bytes);
void ToHost(void* host, const void* device, int64_t bytes);
void Fill(void* device, int byte, int64_t bytes);

template <typename T>
cuda::DeviceBuffer Upload(const std::vector<T>& values) {
  cuda::DeviceBuffer buffer = NewBuffer(static_cast<int64_t>(values.size() * sizeof(T)));
  ToDevice(buffer.data(), values.data(), buffer.bytes());
  return buffer;
}

template <typename T>
std::vector<T> Download(const void* device, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  ToHost(values.data(), device, count * static_cast<int64_t>(sizeof(T)));
  return values;
}

// An output between guards that nobody may write.
class GuardedOutput {
 public:
  static constexpr int64_t kGuardBytes = 4096;
  static constexpr int kCanary = 0xC3;

  // `offset` bytes past an aligned address.
  explicit GuardedOutput(int64_t bytes, int64_t offset = 0);
  void* data() const { return buffer_.data() + kGuardBytes + offset_; }
  // Fails the test when a guard changed.
  void ExpectGuardsIntact() const;

 private:
  int64_t bytes_, offset_;
  cuda::DeviceBuffer buffer_;
};

}  // namespace rlk::gpu_test
