// Launchers for one set of functions.
#pragma once

#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"
#include "kernels/ops/timestep_sinusoid_h3/sinusoid.cuh"
#include "kernels/ops/timestep_sinusoid_h3/timestep_sinusoid_h3.h"

namespace rlk::timestep_sinusoid {

inline Arguments MakeArguments(const Problem& problem) {
  return {problem.rows, static_cast<int>(problem.half), problem.log_period, problem.inverse_half};
}

template <typename Functions>
absl::Status LaunchForward(const KernelArgs& args) {
  const MutableTensorView& embedding = args.Output("embedding");
  if (!embedding.present()) return absl::OkStatus();
  const Problem problem = ReadProblem(args, false);
  const TensorView& timestep = args.Input("timestep");
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(problem.rows * problem.half, 128));
  const auto launch = [&](auto element) {
    using T = decltype(element);
    return cuda::Launch(ForwardKernel<Functions, T>, blocks, 128, cuda::CudaStream(args.stream),
                        MakeArguments(problem), timestep.as<T>(), timestep.strides[0],
                        embedding.as<float>());
  };
  switch (timestep.dtype) {
    case DType::kF16:
      return launch(device::F16());
    case DType::kBF16:
      return launch(device::Bf16());
    default:
      return launch(float());
  }
}

template <typename Functions>
absl::Status LaunchBackward(const KernelArgs& args) {
  const MutableTensorView& output = args.Output("grad_timestep");
  if (!output.present()) return absl::OkStatus();
  const Problem problem = ReadProblem(args, true);
  const TensorView& grad = args.Input("grad_embedding");
  const TensorView& embedding = args.Input("embedding");
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(problem.rows, 1));
  const auto padded = static_cast<int>(PaddedChannels(problem.half));
  const auto launch = [&](auto element) {
    using T = decltype(element);
    return cuda::Launch(
        BackwardKernel<Functions, T>, blocks, kThreads, cuda::CudaStream(args.stream),
        MakeArguments(problem), padded, grad.as<float>(),
        device::MakeStridedIndex(grad.shape, grad.strides), embedding.as<float>(),
        device::MakeStridedIndex(embedding.shape, embedding.strides), output.as<T>());
  };
  switch (output.dtype) {
    case DType::kF16:
      return launch(device::F16());
    case DType::kBF16:
      return launch(device::Bf16());
    default:
      return launch(float());
  }
}

}  // namespace rlk::timestep_sinusoid
