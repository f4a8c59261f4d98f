// The deterministic linear as plain data: what every backend of every operator that contains one is
// given. kernels/ops/det_linear/README.md states the arithmetic.
//
// T rows, N outputs, K inputs; x [T, K], weight [N, K], y [T, N], all in C order and 16-byte
// aligned.
#pragma once

#include <cstdint>

#include "kernels/core/dtype.h"
#include "kernels/linear/activation.h"

namespace rlk::linear {

// Contract h3-det-linear-v1: accumulators of a sum, and elements of a chunk.
inline constexpr int64_t kAccumulators = 32;
inline constexpr int64_t kChunk = 4;
// Backward: outputs of one partial sum of grad_x.
inline constexpr int64_t kBackwardChunk = 64;

struct Shape {
  int64_t rows = 0, outputs = 0, inputs = 0;  // T, N, K
};

// F32 or BF16 elements that are read exactly up-converted.
struct Operand {
  DType dtype = DType::kF32;
  const void* data = nullptr;
};
// Elements that are written with one cast. Null data: not wanted.
struct Result {
  DType dtype = DType::kF32;
  void* data = nullptr;
};

// h3-det-linear-v1. Any of y and pre may be null.
struct Fp32Forward {
  Shape shape;
  const float* x = nullptr;       // [T, K]
  const float* weight = nullptr;  // [N, K]
  const float* bias = nullptr;    // [N] or null
  Activation activation = Activation::kNone;
  float* y = nullptr;    // [T, N]
  float* pre = nullptr;  // [T, N]
};

// g [T, N] is grad_y, or its product with activation'(pre), in FP32.
struct BackwardInput {
  Shape shape;
  const float* g = nullptr;  // [T, N]
  Operand weight;            // [N, K]
  Result grad_x;             // [T, K]
};

struct BackwardWeight {
  Shape shape;
  const float* g = nullptr;             // [T, N]
  Operand x;                            // [T, K]
  const float* weight_carry = nullptr;  // [N, K] or null
  const float* bias_carry = nullptr;    // [N] or null
  Result grad_weight;                   // [N, K]
  float* weight_acc = nullptr;          // [N, K] or null
  Result grad_bias;                     // [N]
  float* bias_acc = nullptr;            // [N] or null
};

}  // namespace rlk::linear
