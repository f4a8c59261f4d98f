// final_logit_softcap through the registered variants, the way the engine launches them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/core/tensor_view.h"
#include "kernels/registry/registry.h"

namespace rlk::gpu_test {

// The registry of this build, bound to the compiled signatures. Aborts where that fails.
const Registry& BuiltinRegistry();

struct Forward {
  TensorView x;
  MutableTensorView y;
  float cap;
};
struct Backward {
  TensorView x;
  TensorView grad_y;
  MutableTensorView grad_x;
  float cap;
};

// Enqueues the cuda variant (all data in device memory).
void LaunchCuda(const Forward& call, cudaStream_t stream);
void LaunchCuda(const Backward& call, cudaStream_t stream);
// Runs the cpu variant with all cores (all data in host memory).
void RunCpu(const Forward& call);
void RunCpu(const Backward& call);

TensorView View(DType dtype, int64_t count, const void* data);
MutableTensorView MutableView(DType dtype, int64_t count, void* data);

// `count` elements of the dtype, as bytes. `scale` is the deviation of normal values; `bits`
// draws bit patterns instead, NaN, infinities and subnormals among them.
std::vector<uint8_t> NormalValues(DType dtype, int64_t count, float scale, uint64_t seed);
std::vector<uint8_t> RandomBits(DType dtype, int64_t count, uint64_t seed);

// Fails the test at the first element that differs.
void ExpectSameBytes(const std::vector<uint8_t>& actual, const std::vector<uint8_t>& expected,
                     int64_t element_bytes, const char* what);

}  // namespace rlk::gpu_test
