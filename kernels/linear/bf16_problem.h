// The deterministic linear on BF16 operands as plain data, forward and backward, for every backend:
// contract h3-det-linear-bf16-mma-v1. T rows, N outputs, K inputs, K a multiple of 8; x [T, K],
// weight [N, K], all in C order and 16-byte aligned.
#pragma once

#include <cstdint>

#include "kernels/linear/problem.h"

namespace rlk::linear {

// Chunks of an AdaLN table.
inline constexpr int kViews = 6;

// Where v = total + bias goes, after the activation and one cast.
struct Bf16Output {
  // A table [T, N] in views[0]; or, where view_width is H > 0 and N = 18 H, six views [3 T, H]:
  // channel m 6 H + c H + h of row t is element (3 t + m, h) of views[c]. Null: not wanted.
  void* views[kViews] = {};
  int64_t view_width = 0;
  bool f32 = false;      // or BF16
  float* pre = nullptr;  // v, [T, N], or null
  Activation activation = Activation::kNone;
};

struct Bf16Linear {
  Shape shape;
  const uint16_t* x = nullptr;       // [T, K]
  const uint16_t* weight = nullptr;  // [N, K]
  const uint16_t* bias = nullptr;    // [N] or null
  Bf16Output out;
};

// The gradient g [T, N] of a linear's output, exactly up-converted where it is read: one table or
// the views of AdaLN, laid out as in Bf16Output. A null view is zero.
struct GradientSource {
  const void* views[kViews] = {};
  int64_t view_width = 0;
  bool f32 = true;  // or BF16
  int64_t outputs = 0;
};

// The SiLU of AdaLN: that of the function set f32-v1, or CUDA's libdevice.
enum class SiluKind : uint8_t { kPortable, kCuda };

// grad_x [T, K] of BF16 weights: chunks of 64 outputs by FMA, folded ascending.
struct Bf16BackwardInput {
  Shape shape;
  GradientSource grad;
  const uint16_t* weight = nullptr;  // [N, K]
  Result grad_x;                     // [T, K]
  // AdaLN: the sum times the gradient of silu at temb, in FP32. Null: the sum.
  const float* temb = nullptr;  // [T, K]
  SiluKind silu = SiluKind::kPortable;
};

// grad_weight [N, K] and grad_bias [N]: FMA chains over rows, ascending.
struct Bf16BackwardWeight {
  Shape shape;
  GradientSource grad;
  const uint16_t* x = nullptr;  // [T, K]
  // FP32 carries, or null for zero; sums in FP32, or null; one cast.
  const float* weight_carry = nullptr;  // [N, K]
  const float* bias_carry = nullptr;    // [N]
  float* weight_acc = nullptr;          // [N, K]
  float* bias_acc = nullptr;            // [N]
  Result grad_weight;                   // [N, K]
  Result grad_bias;                     // [N]
};

}  // namespace rlk::linear
