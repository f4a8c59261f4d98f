#include "kernels/cuda/launch.h"
#include "tests/gpu/fault_kernels.h"

namespace rlk::gpu_test {
namespace {

__global__ void IllegalWriteKernel(int* nowhere) { *nowhere = 1; }

__global__ void UntilKernel(const volatile int* release) {
  while (*release == 0) {
  }
}

}  // namespace

absl::Status LaunchIllegalWrite(StreamRef stream) {
  // Aligned, and far from every mapping.
  return cuda::Launch(IllegalWriteKernel, 1, 1, static_cast<cudaStream_t>(stream.handle),
                      reinterpret_cast<int*>(uintptr_t{0x1000}));
}

absl::Status LaunchUntil(const int* release, StreamRef stream) {
  return cuda::Launch(UntilKernel, 1, 1, static_cast<cudaStream_t>(stream.handle), release);
}

}  // namespace rlk::gpu_test
