// What the backward kernels of the BF16 linear share.
#pragma once

#include <cstdint>

#include "kernels/device/vector_access.cuh"
#include "kernels/linear/activation.cuh"
#include "kernels/linear/bf16_cuda.h"

namespace rlk::linear {

// g[row, channel] in FP32.
__device__ __forceinline__ float Gradient(const GradientSource& source, int64_t row,
                                          int64_t channel) {
  const void* from = source.views[0];
  int64_t at = row * source.outputs + channel;
  if (source.view_width != 0) {
    const int64_t chunk = channel / source.view_width;  // 6 m + c
    const int64_t column = channel - chunk * source.view_width;
    const int64_t modality = chunk / kViews;
    const int64_t view = chunk - modality * kViews;
    from = nullptr;
#pragma unroll
    for (int c = 0; c < kViews; ++c) {
      if (view == c) from = source.views[c];
    }
    at = (row * 3 + modality) * source.view_width + column;
  }
  if (from == nullptr) return 0.0f;
  if (source.f32) return static_cast<const float*>(from)[at];
  return arith::Bf16ToFloat(static_cast<const uint16_t*>(from)[at]);
}

// Eight BF16 elements as FP32.
__device__ __forceinline__ void Unpack8(const uint4& word, float (&x)[8]) {
  device::UnpackPair<device::Bf16>(word.x, x[0], x[1]);
  device::UnpackPair<device::Bf16>(word.y, x[2], x[3]);
  device::UnpackPair<device::Bf16>(word.z, x[4], x[5]);
  device::UnpackPair<device::Bf16>(word.w, x[6], x[7]);
}

__device__ __forceinline__ uint4 Pack8(const float (&x)[8]) {
  return make_uint4(
      device::PackPair<device::Bf16>(x[0], x[1]), device::PackPair<device::Bf16>(x[2], x[3]),
      device::PackPair<device::Bf16>(x[4], x[5]), device::PackPair<device::Bf16>(x[6], x[7]));
}

// The last step of grad_x.
__device__ __forceinline__ void WriteGradX(const Bf16BackwardInput& problem, int64_t at,
                                           float sum) {
  const Activation silu =
      problem.silu == SiluKind::kPortable ? Activation::kSilu : Activation::kSiluCuda;
  const float v = problem.temb != nullptr ? DeviceActivationVjp(silu, sum, problem.temb[at]) : sum;
  if (problem.grad_x.dtype == DType::kF32) {
    static_cast<float*>(problem.grad_x.data)[at] = arith::Canonical(v);
  } else {
    static_cast<device::Bf16*>(problem.grad_x.data)[at] = device::FromFloat<device::Bf16>(v);
  }
}

// Columns of eight elements of one block: threads of a row.
inline unsigned RowThreads(int64_t inputs, unsigned threads_max) {
  const int64_t columns = inputs / 8;
  const int64_t blocks = (columns + threads_max - 1) / threads_max;
  const int64_t each = (columns + blocks - 1) / blocks;
  return static_cast<unsigned>((each + 31) / 32 * 32);
}

}  // namespace rlk::linear
