// The loops of the cpu backend over FP32 rows, one table for each instruction set; the bits are
// equal. No inline function of external linkage may be defined or included here.
#pragma once

#include <cstdint>

namespace rlk {

// Index of a float dtype in the tables below.
enum NormDType { kNormF32 = 0, kNormF16 = 1, kNormBf16 = 2 };
inline constexpr int kNormConventions = 4;  // rms_norm::Convention

// What a loop over elements of one row needs; pointers are [count].
struct NormRow {
  const float* x = nullptr;
  const float* w = nullptr;     // with its offset, where the convention has one
  const float* dy = nullptr;    // backward
  const float* gate = nullptr;  // gated conventions
  float r = 0;
  bool sigmoid = false;  // else silu
  bool round_weighted = false;
  int64_t count = 0;
};

struct NormCpuKernels {
  void (*load[3])(const void* in, float* out, int64_t count);
  void (*store[3])(const float* in, void* out, int64_t count);
  // rowsum-v1; accumulators has room for 4096 floats.
  float (*row_sum)(const float* a, const float* b, int64_t length, float* accumulators);
  float (*statistic)(float sum_of_squares, float length, float eps);
  void (*offset_weight)(float* w, float offset, int64_t count);
  // [convention][dtype of x].
  void (*forward[kNormConventions][3])(const NormRow& row, float* y);
  void (*backward[kNormConventions][3])(const NormRow& row, float* xh, float* g, float* grad_gate);
  void (*terms[kNormConventions][3])(const NormRow& row, float* c);
  void (*grad_x)(const float* xh, const float* g, float r, float k, float* dx, int64_t count);
  float (*mean)(float sum, float length);
  // accumulator[i] = add(accumulator[i], c[i]).
  void (*add)(const float* c, float* accumulator, int64_t count);
};

extern const NormCpuKernels kNormCpuKernelsBase, kNormCpuKernelsV3, kNormCpuKernelsV4;

}  // namespace rlk
