// The deterministic linear on the host, split over a pool's threads by index ranges alone.
#pragma once

#include <vector>

#include "kernels/core/cpu_features.h"
#include "kernels/core/parallel.h"
#include "kernels/linear/problem.h"

namespace rlk::linear {

// Where it runs; null runs on the caller's thread. The instruction set must be available.
struct HostRun {
  ThreadPool* pool = nullptr;
  Isa isa = BestIsa();
};

void ForwardFp32Cpu(const Fp32Forward& problem, const HostRun& run);
void BackwardInputCpu(const BackwardInput& problem, const HostRun& run);
void BackwardWeightCpu(const BackwardWeight& problem, const HostRun& run);

// y[i] = activation(v[i]) for `elements` elements.
void ActivateCpu(Activation activation, const float* v, int64_t elements, const HostRun& run,
                 float* y);

// g [T, N] of a backward: grad_y in FP32, times activation'(pre). pre may be null for kNone.
// Points into `storage`, or is grad_y itself where nothing has to be computed.
const float* GradientCpu(Activation activation, const Operand& grad_y, const float* pre,
                         int64_t elements, const HostRun& run, std::vector<float>& storage);

}  // namespace rlk::linear
