// Epilogue functions of the deterministic linear, for host and device.
#pragma once

#include <cstdint>

#include "kernels/arith/functions.h"

namespace rlk::linear {

// rlk.v1.LinearActivation. kSiluCuda is CUDA's libdevice and exists in device code alone
// (activation.cuh).
enum class Activation : uint8_t { kNone = 1, kSilu = 2, kSiluCuda = 3 };

// What the forward gives for v, the sum with its bias. Portable activations.
RLK_HD float Activate(Activation activation, float v) {
  return activation == Activation::kSilu ? arith::Silu(v) : v;
}

// The gradient of v from g, that of Activate(v). Portable activations.
RLK_HD float ActivationVjp(Activation activation, float g, float v) {
  return activation == Activation::kSilu ? arith::Mul(g, arith::SiluGrad(v)) : g;
}

}  // namespace rlk::linear
