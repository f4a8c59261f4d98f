#include "tests/gpu/device_memory.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace rlk::gpu_test {

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::abort();
}

cuda::Stream NewStream() {
  auto stream = cuda::Stream::Create();
  if (!stream.ok()) {
    std::fprintf(stderr, "%s\n", stream.status().ToString().c_str());
    std::abort();
  }
  return *std::move(stream);
}

cuda::DeviceBuffer NewBuffer(int64_t bytes) {
  auto buffer = cuda::DeviceBuffer::Allocate(bytes);
  if (!buffer.ok()) {
    std::fprintf(stderr, "%s\n", buffer.status().ToString().c_str());
    std::abort();
  }
  return *std::move(buffer);
}

void ToDevice(void* device, const void* host, int64_t bytes) {
  const cuda::Stream stream = NewStream();
  RLK_GPU_CHECK(cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice,
                                stream.get()));
  RLK_GPU_CHECK(cudaStreamSynchronize(stream.get()));
}

void ToHost(void* host, const void* device, int64_t bytes) {
  const cuda::Stream stream = NewStream();
  RLK_GPU_CHECK(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost,
                                stream.get()));
  RLK_GPU_CHECK(cudaStreamSynchronize(stream.get()));
}

void Fill(void* device, int byte, int64_t bytes) {
  const cuda::Stream stream = NewStream();
  RLK_GPU_CHECK(cudaMemsetAsync(device, byte, static_cast<size_t>(bytes), stream.get()));
  RLK_GPU_CHECK(cudaStreamSynchronize(stream.get()));
}

GuardedOutput::GuardedOutput(int64_t bytes, int64_t offset)
    : bytes_(bytes), offset_(offset), buffer_(NewBuffer(bytes + offset + 2 * kGuardBytes)) {
  Fill(buffer_.data(), kCanary, buffer_.bytes());
}

void GuardedOutput::ExpectGuardsIntact() const {
  const auto bytes = Download<uint8_t>(buffer_.data(), buffer_.bytes());
  const auto is_canary = [](uint8_t byte) { return byte == kCanary; };
  const int64_t begin = kGuardBytes + offset_;
  EXPECT_TRUE(std::all_of(bytes.begin(), bytes.begin() + begin, is_canary)) << "written before";
  EXPECT_TRUE(std::all_of(bytes.begin() + begin + bytes_, bytes.end(), is_canary))
      << "written behind";
}

}  // namespace rlk::gpu_test
