#include <cmath>
#include <string>
#include <vector>

#include "kernels/cuda/buffer.h"
#include "kernels/cuda/device_guard.h"
#include "kernels/digest/digest.h"
#include "kernels/ops/timestep_sinusoid_h3/cuda_launch.h"
#include "kernels/ops/timestep_sinusoid_h3/sinusoid_launch.cuh"

namespace rlk::timestep_sinusoid {

absl::Status LaunchH3Forward(const KernelArgs& args) { return LaunchForward<Libdevice>(args); }
absl::Status LaunchH3Backward(const KernelArgs& args) { return LaunchBackward<Libdevice>(args); }

absl::StatusOr<std::string> H3Digest(int ordinal) {
  constexpr int kRows = 4097, kHalf = 128;
  const cuda::DeviceGuard guard(ordinal);
  RLK_CUDA_RETURN_IF_ERROR(guard.error());
  std::vector<float> timesteps(kRows), embedding(kRows * 2 * kHalf);
  for (int t = 0; t < kRows; ++t) timesteps[t] = static_cast<float>(t) / 4096.0f;
  const int64_t in_bytes = kRows * sizeof(float);
  const int64_t out_bytes = static_cast<int64_t>(embedding.size() * sizeof(float));
  RLK_ASSIGN_OR_RETURN(const cuda::Stream stream, cuda::Stream::Create());
  RLK_ASSIGN_OR_RETURN(const cuda::DeviceBuffer in, cuda::DeviceBuffer::Allocate(in_bytes));
  RLK_ASSIGN_OR_RETURN(const cuda::DeviceBuffer out, cuda::DeviceBuffer::Allocate(out_bytes));
  RLK_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(in.data(), timesteps.data(), in_bytes, cudaMemcpyHostToDevice, stream.get()));
  const Arguments arguments = {kRows, kHalf, static_cast<float>(-std::log(10000.0)),
                               1.0f / static_cast<float>(kHalf)};
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(int64_t{kRows} * kHalf, 128));
  RLK_RETURN_IF_ERROR(cuda::Launch(ForwardKernel<Libdevice, float>, blocks, 128, stream.get(),
                                   arguments, reinterpret_cast<const float*>(in.data()), int64_t{1},
                                   reinterpret_cast<float*>(out.data())));
  RLK_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(embedding.data(), out.data(), out_bytes,
                                           cudaMemcpyDeviceToHost, stream.get()));
  RLK_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream.get()));
  const Dims shape = {kRows, 2 * kHalf};
  return ComputeDigest({DType::kF32, shape, ContiguousStrides(shape), embedding.data()}).Text();
}

}  // namespace rlk::timestep_sinusoid
