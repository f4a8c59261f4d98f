// The cpu backend of portable-v1: rows in parallel.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernels/core/cpu_features.h"
#include "kernels/core/for_each_range.h"
#include "kernels/core/fp_environment.h"
#include "kernels/core/strided.h"
#include "kernels/ops/timestep_sinusoid_h3/cpu_kernels.h"
#include "kernels/ops/timestep_sinusoid_h3/timestep_sinusoid_h3.h"

namespace rlk {
namespace {

using timestep_sinusoid::Problem;

// Elements of one step of the pool.
constexpr int64_t kGrainElements = 8192;

const SinusoidCpuKernels& Kernels(Isa isa) {
  return PickByIsa(isa, kSinusoidCpuKernelsBase, kSinusoidCpuKernelsV3, kSinusoidCpuKernelsV4);
}

int Index(DType dtype) { return dtype == DType::kF32 ? 0 : dtype == DType::kF16 ? 1 : 2; }

// Elements [begin, begin + count) in FP32; the data need be neither contiguous nor aligned.
void Read(const SinusoidCpuKernels& kernels, const TensorView& tensor, int64_t begin, int64_t count,
          std::vector<std::byte>& gathered, float* out) {
  gathered.resize(static_cast<size_t>(count * DTypeSize(tensor.dtype)));
  GatherElements(tensor, begin, count, gathered.data());
  kernels.load[Index(tensor.dtype)](gathered.data(), out, count);
}

std::vector<float> Frequencies(const SinusoidCpuKernels& kernels, const Problem& problem) {
  const FpEnvironment environment;
  std::vector<float> frequencies(static_cast<size_t>(problem.half));
  kernels.frequencies(problem.log_period, problem.inverse_half, problem.half, frequencies.data());
  return frequencies;
}

template <typename Body>
void ForEachRow(const KernelArgs& args, const Problem& problem, const Body& body) {
  const int64_t grain = std::max<int64_t>(1, kGrainElements / (2 * problem.half));
  ForEachRange(args.pool, problem.rows, grain, body);
}

}  // namespace

absl::Status RunTimestepSinusoidForwardCpu(const KernelArgs& args, Isa isa) {
  const SinusoidCpuKernels& kernels = Kernels(isa);
  const Problem problem = timestep_sinusoid::ReadProblem(args, false);
  const MutableTensorView& embedding = args.Output("embedding");
  if (!embedding.present()) return absl::OkStatus();
  const std::vector<float> frequencies = Frequencies(kernels, problem);
  ForEachRow(args, problem, [&](int64_t begin, int64_t end) {
    std::vector<std::byte> gathered;
    std::vector<float> t(static_cast<size_t>(end - begin));
    Read(kernels, args.Input("timestep"), begin, end - begin, gathered, t.data());
    for (int64_t row = begin; row < end; ++row) {
      kernels.forward(t[static_cast<size_t>(row - begin)], frequencies.data(), problem.half,
                      embedding.as<float>() + row * 2 * problem.half);
    }
  });
  return absl::OkStatus();
}

absl::Status RunTimestepSinusoidBackwardCpu(const KernelArgs& args, Isa isa) {
  const SinusoidCpuKernels& kernels = Kernels(isa);
  const Problem problem = timestep_sinusoid::ReadProblem(args, true);
  const MutableTensorView& grad = args.Output("grad_timestep");
  if (!grad.present()) return absl::OkStatus();
  const std::vector<float> frequencies = Frequencies(kernels, problem);
  const int64_t channels = 2 * problem.half;
  const int64_t padded = timestep_sinusoid::PaddedChannels(problem.half);
  ForEachRow(args, problem, [&](int64_t begin, int64_t end) {
    std::vector<std::byte> gathered;
    std::vector<float> buffer(static_cast<size_t>(2 * channels + padded));
    float* const g = buffer.data();
    float* const e = g + channels;
    for (int64_t row = begin; row < end; ++row) {
      Read(kernels, args.Input("grad_embedding"), row * channels, channels, gathered, g);
      Read(kernels, args.Input("embedding"), row * channels, channels, gathered, e);
      const float sum =
          kernels.backward(g, e, frequencies.data(), problem.half, padded, e + channels);
      kernels.store[Index(grad.dtype)](&sum, grad.as<std::byte>() + row * DTypeSize(grad.dtype), 1);
    }
  });
  return absl::OkStatus();
}

absl::Status LaunchTimestepSinusoidForwardCpu(const KernelArgs& args) {
  return RunTimestepSinusoidForwardCpu(args, BestIsa());
}

absl::Status LaunchTimestepSinusoidBackwardCpu(const KernelArgs& args) {
  return RunTimestepSinusoidBackwardCpu(args, BestIsa());
}

}  // namespace rlk
