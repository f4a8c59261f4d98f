// Epilogue functions of the deterministic linear on the device: the portable ones, and SiLU of
// CUDA's libdevice in the order of torch's eager kernels.
#pragma once

#include "kernels/linear/activation.h"

namespace rlk::linear {

__device__ __forceinline__ float DeviceActivate(Activation activation, float v) {
  if (activation == Activation::kSiluCuda) {
    return __fdiv_rn(v, __fadd_rn(1.0f, expf(-v)));
  }
  return Activate(activation, v);
}

__device__ __forceinline__ float DeviceActivationVjp(Activation activation, float g, float z) {
  if (activation == Activation::kSiluCuda) {
    const float s = __fdiv_rn(1.0f, __fadd_rn(1.0f, expf(-z)));
    return __fmul_rn(g, __fmul_rn(s, __fadd_rn(1.0f, __fmul_rn(z, __fsub_rn(1.0f, s)))));
  }
  return ActivationVjp(activation, g, z);
}

}  // namespace rlk::linear
