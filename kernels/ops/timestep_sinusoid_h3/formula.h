// The arithmetic of timestep_sinusoid_h3 for host and device; README.md states the contracts. The
// set of functions is a parameter: portable-v1 has f32-v1, h3-v1 CUDA's own (device code alone).
#pragma once

#include <cstdint>

#include "kernels/arith/functions.h"

namespace rlk::timestep_sinusoid {

struct Portable {
  RLK_HD float Exp(float x) { return arith::Exp(x); }
  RLK_HD float Sin(float x) { return arith::Sin(x); }
  RLK_HD float Cos(float x) { return arith::Cos(x); }
};

// f_k; `log_period` is fp32(-log(max_period)), `inverse_half` is div(1, float(half)).
template <typename Functions>
RLK_HD float Frequency(float log_period, float inverse_half, int64_t k) {
  return Functions::Exp(arith::Mul(arith::Mul(log_period, static_cast<float>(k)), inverse_half));
}

// One term of a timestep's gradient: of the cosine channel, whose sine channel holds `sine`, and of
// the sine channel.
RLK_HD float CosineTerm(float g_cos, float sine, float frequency) {
  return arith::Mul(arith::Neg(arith::Mul(g_cos, sine)), frequency);
}
RLK_HD float SineTerm(float g_sin, float cosine, float frequency) {
  return arith::Mul(arith::Mul(g_sin, cosine), frequency);
}

}  // namespace rlk::timestep_sinusoid
