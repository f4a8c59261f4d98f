// Loops of the deterministic linear on the host, one table for each instruction set; the bits are
// equal. No inline function of external linkage may be defined or included here.
#pragma once

#include <cstdint>

#include "kernels/linear/problem.h"

namespace rlk::linear {

struct CpuKernels {
  // h3-det-linear-v1. Rows are packed before they are multiplied: packed_size(K) floats a row, of
  // which the order is the table's own.
  int64_t (*packed_size)(int64_t inputs);
  void (*pack_x)(const float* row, int64_t inputs, float* packed);
  // Rows [row_begin, row_begin + rows) of y and pre, outputs [begin, end). `packed_x` holds those
  // rows; `scratch` has room for scratch_rows() packed rows.
  int64_t (*scratch_rows)();
  void (*forward)(const Fp32Forward& problem, int64_t row_begin, int64_t rows, int64_t begin,
                  int64_t end, const float* packed_x, float* scratch);
  // Columns [begin, end) of grad_x.
  void (*backward_input)(const BackwardInput& problem, int64_t begin, int64_t end);
  // Rows [begin, end) of the weight's gradient, and elements [begin, end) of the bias's.
  void (*backward_weight)(const BackwardWeight& problem, int64_t begin, int64_t end);
  void (*backward_bias)(const BackwardWeight& problem, int64_t begin, int64_t end);
  // pre[i] = v[i] and y[i] = activation(v[i]) as they are stored, each where it is not null; pre
  // may be v.
  void (*activate)(Activation activation, const float* v, float* pre, float* y, int64_t count);
  // g[i] from grad_y[i] and, unless the activation is kNone, pre[i], for i in [begin, end).
  void (*gradient)(Activation activation, const Operand& grad_y, const float* pre, int64_t begin,
                   int64_t end, float* g);
};

extern const CpuKernels kCpuKernelsBase, kCpuKernelsV3, kCpuKernelsV4;

}  // namespace rlk::linear
