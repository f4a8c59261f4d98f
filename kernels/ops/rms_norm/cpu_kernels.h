// The loops of the cpu backend over FP32 rows, one table for each instruction set; the bits are
// equal. No inline function of external linkage may be defined or included here.
#pragma once

#include <cstdint>

namespace rlk {

// Index of a float dtype in the tables below.
enum NormDType { kNormF32 = 0, kNormF16 = 1, kNormBf16 = 2 };
inline constexpr int kNormConventions = 4;  // rms_norm::Convention

// What a loop over elements needs: of one row, or of several narrow rows that lie one after
// another. Pointers are [count]; what a row has once is a number for one row and stands at each
// element of several.
struct NormRows {
  const float* x = nullptr;
  const float* w = nullptr;     // with its offset, where the convention has one; once for each row
  const float* dy = nullptr;    // backward
  const float* gate = nullptr;  // gated conventions
  const float* rs = nullptr;    // the statistic of several rows; null: r
  const float* ks = nullptr;    // grad_x: k of several rows, beside rs; else k
  float r = 0, k = 0;
  bool sigmoid = false;  // else silu
  bool round_weighted = false;
  int64_t count = 0;
};

struct NormCpuKernels {
  void (*load[3])(const void* in, float* out, int64_t count);
  void (*store[3])(const float* in, void* out, int64_t count);
  // sums[i] = rowsum-v1 of row i of a and b, [rows, length]; accumulators has room for 4096 floats.
  void (*row_sums)(const float* a, const float* b, int64_t length, int64_t rows,
                   float* accumulators, float* sums);
  // In place, [rows]: the statistic from the sum of squares, and div(sum, length).
  void (*statistics)(float* sums, int64_t rows, float length, float eps);
  void (*means)(float* sums, int64_t rows, float length);
  // Each of [rows] to all elements of its row, [rows, length].
  void (*spread)(const float* values, int64_t length, int64_t rows, float* out);
  void (*offset_weight)(float* w, float offset, int64_t count);
  // [convention][dtype of x].
  void (*forward[kNormConventions][3])(const NormRows& rows, float* y);
  void (*backward[kNormConventions][3])(const NormRows& rows, float* xh, float* g,
                                        float* grad_gate);
  void (*terms[kNormConventions][3])(const NormRows& rows, float* c);
  void (*grad_x)(const NormRows& rows, const float* xh, const float* g, float* dx);
  // accumulator[h] = add(accumulator[h], c[h]), for each row of c, [rows, length], in order.
  void (*add)(const float* c, int64_t length, int64_t rows, float* accumulator);
};

extern const NormCpuKernels kNormCpuKernelsBase, kNormCpuKernelsV3, kNormCpuKernelsV4;

}  // namespace rlk
