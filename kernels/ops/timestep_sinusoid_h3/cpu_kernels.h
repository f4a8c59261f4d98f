// Loops of timestep_sinusoid_h3 on the host, one table for each instruction set; the bits are
// equal. No inline function of external linkage may be defined or included here.
#pragma once

#include <cstdint>

namespace rlk {

struct SinusoidCpuKernels {
  void (*frequencies)(float log_period, float inverse_half, int64_t half, float* out);
  // out[0 .. half) = cos, out[half .. 2 half) = sin of t times the frequencies.
  void (*forward)(float t, const float* frequencies, int64_t half, float* out);
  // The gradient of one timestep; `terms` has room for `padded` floats.
  float (*backward)(const float* grad, const float* embedding, const float* frequencies,
                    int64_t half, int64_t padded, float* terms);
  // Casts of FP32 to and from a dtype: F32, F16, BF16.
  void (*load[3])(const void* in, float* out, int64_t count);
  void (*store[3])(const float* in, void* out, int64_t count);
};

extern const SinusoidCpuKernels kSinusoidCpuKernelsBase, kSinusoidCpuKernelsV3,
    kSinusoidCpuKernelsV4;

}  // namespace rlk
