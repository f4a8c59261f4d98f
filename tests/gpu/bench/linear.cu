// The BF16 linear behind the C interface of the benchmark script, and its floors. Pointers are
// device memory; 0 is success.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/linear/bf16_cuda.h"
#include "kernels/linear/bf16_forward.cuh"
#include "kernels/linear/k128.h"
#include "kernels/linear/k128_cuda.h"

#define RLK_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

namespace linear = rlk::linear;

constexpr int kThreads = 256;
constexpr int kWords = 8;  // of 16 bytes, a thread

// Reads; the sum is written only where it is a value that it does not have.
__global__ void __launch_bounds__(kThreads)
    ReadKernel(const uint4* __restrict__ in, int64_t words, uint32_t never, uint32_t* out) {
  const int64_t first = int64_t{blockIdx.x} * kThreads * kWords + threadIdx.x;
  uint4 word[kWords];
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    const int64_t at = first + int64_t{i} * kThreads;
    word[i] = at < words ? __ldg(in + at) : make_uint4(0, 0, 0, 0);
  }
  uint32_t sum = 0;
#pragma unroll
  for (int i = 0; i < kWords; ++i) sum ^= word[i].x ^ word[i].y ^ word[i].z ^ word[i].w;
  if (sum == never) *out = sum;
}

__global__ void __launch_bounds__(kThreads) WriteKernel(uint4* out, int64_t words, uint32_t value) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at < words) out[at] = make_uint4(value, value, value, value);
}

// y[i] = silu_cuda of the pattern first + i.
__global__ void __launch_bounds__(kThreads)
    SiluCudaKernel(uint32_t first, int64_t count, float* y) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const float z = __uint_as_float(first + static_cast<uint32_t>(i));
  y[i] = linear::DeviceActivate(linear::Activation::kSiluCuda, z);
}

}  // namespace

// As LinearCall of linear_bench.py.
struct LinearBenchCall {
  int64_t rows, outputs, inputs;
  const void *temb, *x, *weight, *bias, *grad;  // temb F32; grad [rows, outputs] BF16
  void *y, *grad_x, *grad_weight, *grad_bias;   // grad_x F32
  void *plain, *packed, *partial;
  int64_t grad_f32;  // grad is F32 (k128)
};

namespace {

linear::Bf16Linear Forward(const LinearBenchCall& call) {
  linear::Bf16Linear problem;
  problem.shape = {call.rows, call.outputs, call.inputs};
  problem.x = static_cast<const uint16_t*>(call.plain);
  problem.weight = static_cast<const uint16_t*>(call.weight);
  problem.bias = static_cast<const uint16_t*>(call.bias);
  problem.out.views[0] = call.y;
  return problem;
}

linear::GradientSource Gradient(const LinearBenchCall& call) {
  linear::GradientSource grad;
  grad.views[0] = call.grad;
  grad.f32 = call.grad_f32 != 0;
  grad.outputs = call.outputs;
  return grad;
}

linear::Bf16BackwardInput BackwardInput(const LinearBenchCall& call) {
  linear::Bf16BackwardInput problem;
  problem.shape = {call.rows, call.outputs, call.inputs};
  problem.grad = Gradient(call);
  problem.weight = static_cast<const uint16_t*>(call.weight);
  problem.grad_x = {rlk::DType::kF32, call.grad_x};
  problem.temb = static_cast<const float*>(call.temb);
  return problem;
}

linear::Bf16BackwardWeight BackwardWeight(const LinearBenchCall& call) {
  linear::Bf16BackwardWeight problem;
  problem.shape = {call.rows, call.outputs, call.inputs};
  problem.grad = Gradient(call);
  problem.x = static_cast<const uint16_t*>(call.x);
  problem.grad_weight = {rlk::DType::kBF16, call.grad_weight};
  problem.grad_bias = {rlk::DType::kBF16, call.grad_bias};
  return problem;
}

int Done(const absl::Status& status) { return status.ok() ? 0 : 1; }

}  // namespace

RLK_EXPORT int64_t rlk_bench_linear_packed_bytes(const LinearBenchCall* call) {
  return std::max(linear::Bf16WgmmaBytes(Forward(*call)),
                  linear::K128ForwardBytes(Forward(*call), 1));
}
RLK_EXPORT int64_t rlk_bench_linear_partial_bytes(const LinearBenchCall* call) {
  const linear::Shape shape = {call->rows, call->outputs, call->inputs};
  return std::max(linear::Bf16BackwardInputBytes(shape),
                  linear::K128GradientBytes(Gradient(*call), call->rows) +
                      linear::K128BackwardInputBytes(shape, 4));
}

// What AdaLN's forward runs: silu, cast, the linear. 0: by mma.sync, 1: by wgmma, 2: k128.
RLK_EXPORT int rlk_bench_linear_forward(const LinearBenchCall* call, int kind, void* stream) {
  const linear::Bf16Linear problem = Forward(*call);
  auto* packed = static_cast<uint16_t*>(call->packed);
  auto* plain = static_cast<uint16_t*>(call->plain);
  const absl::Status silu = linear::LaunchBf16Silu(
      linear::SiluKind::kPortable, static_cast<const float*>(call->temb), call->rows, call->inputs,
      kind == 1 ? nullptr : plain, kind == 1 ? packed : nullptr, {stream});
  if (!silu.ok()) return 1;
  if (kind == 0) return Done(linear::LaunchBf16ForwardMma(problem, {stream}, true));
  if (kind == 1) return Done(linear::LaunchBf16ForwardWgmma(problem, packed, {stream}));
  const absl::Status pack =
      linear::LaunchK128Pack(plain, call->rows, call->inputs, packed, {stream});
  return pack.ok() ? Done(linear::LaunchK128ForwardWgmma(problem, 1, packed, {stream})) : 1;
}

// The contract's silu(temb), cast, into `plain`.
RLK_EXPORT int rlk_bench_linear_silu(const LinearBenchCall* call, void* stream) {
  return linear::LaunchBf16Silu(linear::SiluKind::kPortable, static_cast<const float*>(call->temb),
                                call->rows, call->inputs, static_cast<uint16_t*>(call->plain),
                                nullptr, {stream})
                 .ok()
             ? 0
             : 1;
}

RLK_EXPORT int rlk_bench_linear_backward_input(const LinearBenchCall* call, void* stream) {
  return Done(linear::LaunchBf16BackwardInput(BackwardInput(*call), call->partial, {stream}));
}
RLK_EXPORT int rlk_bench_linear_backward_weight(const LinearBenchCall* call, void* stream) {
  return Done(linear::LaunchBf16BackwardWeight(BackwardWeight(*call), {stream}));
}

// Both under k128, the gradient's parts made once. wanted: 1 grad_x, 2 grad_weight, 3 both.
RLK_EXPORT int rlk_bench_linear_backward_k128(const LinearBenchCall* call, int wanted,
                                              void* stream) {
  const linear::GradientSource source = Gradient(*call);
  linear::K128Gradient grad;
  auto* workspace = static_cast<std::byte*>(call->partial);
  if (!linear::PrepareK128Gradient(source, call->rows, workspace, {stream}, grad).ok()) return 1;
  workspace += linear::K128GradientBytes(source, call->rows);
  // As the contract's default has it.
  const int64_t parts = linear::K128Parts(0, call->outputs);
  if ((wanted & 1) != 0 && Done(linear::LaunchK128BackwardInput(BackwardInput(*call), grad, parts,
                                                                workspace, {stream})) != 0) {
    return 1;
  }
  if ((wanted & 2) == 0) return 0;
  return Done(linear::LaunchK128BackwardWeight(BackwardWeight(*call), grad, {stream}));
}

// The floors: `bytes` read, or written.
RLK_EXPORT int rlk_bench_read(const void* in, int64_t bytes, void* out, void* stream) {
  const auto blocks = rlk::cuda::GridBlocks(bytes / 16, kThreads * kWords);
  if (!blocks.ok()) return 1;
  return rlk::cuda::Launch(&ReadKernel, *blocks, kThreads, static_cast<cudaStream_t>(stream),
                           static_cast<const uint4*>(in), bytes / 16, 0x5a5a1234u,
                           static_cast<uint32_t*>(out))
                 .ok()
             ? 0
             : 1;
}
RLK_EXPORT int rlk_bench_write(void* out, int64_t bytes, void* stream) {
  const auto blocks = rlk::cuda::GridBlocks(bytes / 16, kThreads);
  if (!blocks.ok()) return 1;
  return rlk::cuda::Launch(&WriteKernel, *blocks, kThreads, static_cast<cudaStream_t>(stream),
                           static_cast<uint4*>(out), bytes / 16, 0x3c3c3c3cu)
                 .ok()
             ? 0
             : 1;
}

// The SiLU of contract h3-v1 for `count` bit patterns from `first`.
RLK_EXPORT int rlk_bench_silu_cuda(uint32_t first, int64_t count, void* y, void* stream) {
  const auto blocks = rlk::cuda::GridBlocks(count, kThreads);
  if (!blocks.ok()) return 1;
  return rlk::cuda::Launch(&SiluCudaKernel, *blocks, kThreads, static_cast<cudaStream_t>(stream),
                           first, count, static_cast<float*>(y))
                 .ok()
             ? 0
             : 1;
}
