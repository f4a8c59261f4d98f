#include "kernels/linear/cpu.h"

#include <algorithm>
#include <cstddef>

#include "kernels/core/cpu_features.h"
#include "kernels/core/for_each_range.h"
#include "kernels/linear/cpu_kernels.h"

namespace rlk::linear {
namespace {

// Multiplications of one step of the pool.
constexpr int64_t kGrainSteps = 1 << 18;
// Rows of x that are packed at once: their copies stay in the caches.
constexpr int64_t kRowBand = 192;
// Outputs and columns of a step are multiples of these, so that tiles are whole.
constexpr int64_t kOutputGrain = 12;
constexpr int64_t kColumnGrain = 64;
constexpr int64_t kElementGrain = 16384;

const CpuKernels& Kernels(Isa isa) {
  return PickByIsa(isa, kCpuKernelsBase, kCpuKernelsV3, kCpuKernelsV4);
}

// As many of a thing that takes `steps` multiplications each as make a step of the pool.
int64_t Grain(int64_t steps, int64_t multiple) {
  const int64_t grain = kGrainSteps / std::max<int64_t>(steps, 1);
  return std::max<int64_t>((grain + multiple - 1) / multiple, 1) * multiple;
}

}  // namespace

void ForwardFp32Cpu(const Fp32Forward& problem, const HostRun& run) {
  if (problem.y == nullptr && problem.pre == nullptr) return;
  const CpuKernels& kernels = Kernels(run.isa);
  const auto [total, outputs, inputs] = problem.shape;
  const int64_t row_size = kernels.packed_size(inputs);
  std::vector<float> packed(static_cast<size_t>(std::min(total, kRowBand) * row_size));
  for (int64_t first = 0; first < total; first += kRowBand) {
    const int64_t rows = std::min(total - first, kRowBand);
    ForEachRange(run.pool, rows, Grain(inputs, 1), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        kernels.pack_x(problem.x + (first + t) * problem.shape.inputs, problem.shape.inputs,
                       packed.data() + t * row_size);
      }
    });
    const int64_t grain = Grain(rows * inputs, kOutputGrain);
    ForEachRange(run.pool, outputs, grain, [&](int64_t begin, int64_t end) {
      std::vector<float> scratch(static_cast<size_t>(kernels.scratch_rows() * row_size));
      kernels.forward(problem, first, rows, begin, end, packed.data(), scratch.data());
    });
  }
}

void BackwardInputCpu(const BackwardInput& problem, const HostRun& run) {
  if (problem.grad_x.data == nullptr) return;
  const CpuKernels& kernels = Kernels(run.isa);
  const int64_t steps = problem.shape.rows * problem.shape.outputs;
  ForEachRange(run.pool, problem.shape.inputs, Grain(steps, kColumnGrain),
               [&](int64_t begin, int64_t end) { kernels.backward_input(problem, begin, end); });
}

void BackwardWeightCpu(const BackwardWeight& problem, const HostRun& run) {
  const CpuKernels& kernels = Kernels(run.isa);
  const int64_t outputs = problem.shape.outputs;
  if (problem.grad_weight.data != nullptr || problem.weight_acc != nullptr) {
    const int64_t steps = problem.shape.rows * problem.shape.inputs;
    ForEachRange(run.pool, outputs, Grain(steps, kOutputGrain),
                 [&](int64_t begin, int64_t end) { kernels.backward_weight(problem, begin, end); });
  }
  if (problem.grad_bias.data != nullptr || problem.bias_acc != nullptr) {
    ForEachRange(run.pool, outputs, Grain(problem.shape.rows, kColumnGrain),
                 [&](int64_t begin, int64_t end) { kernels.backward_bias(problem, begin, end); });
  }
}

void ActivateCpu(Activation activation, const float* v, int64_t elements, const HostRun& run,
                 float* y) {
  const CpuKernels& kernels = Kernels(run.isa);
  ForEachRange(run.pool, elements, kElementGrain, [&](int64_t begin, int64_t end) {
    kernels.activate(activation, v + begin, nullptr, y + begin, end - begin);
  });
}

const float* GradientCpu(Activation activation, const Operand& grad_y, const float* pre,
                         int64_t elements, const HostRun& run, std::vector<float>& storage) {
  if (activation == Activation::kNone && grad_y.dtype == DType::kF32) {
    return static_cast<const float*>(grad_y.data);
  }
  storage.resize(static_cast<size_t>(elements));
  const CpuKernels& kernels = Kernels(run.isa);
  ForEachRange(run.pool, elements, kElementGrain, [&](int64_t begin, int64_t end) {
    kernels.gradient(activation, grad_y, pre, begin, end, storage.data());
  });
  return storage.data();
}

}  // namespace rlk::linear
