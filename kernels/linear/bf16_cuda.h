// The BF16 linear on CUDA devices whose tensor-core step follows the law t25x16. All pointers are
// device memory.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/core/stream_ref.h"
#include "kernels/linear/bf16_problem.h"

namespace rlk::linear {

// By `mma.sync`, eight rows at a time.
absl::Status LaunchBf16ForwardMma(const Bf16Linear& problem, StreamRef stream);

// By `wgmma` (compute capability 9.0), up to 64 rows at a time. `packed` is what LaunchBf16Pack
// made of x; x itself is not read.
absl::Status LaunchBf16ForwardWgmma(const Bf16Linear& problem, const uint16_t* packed,
                                    StreamRef stream);
// Of a packed x.
int64_t Bf16PackedElements(int64_t rows, int64_t inputs);

// x as the wgmma kernel reads it: [T, K] BF16.
absl::Status LaunchBf16Pack(const uint16_t* x, int64_t rows, int64_t inputs, uint16_t* packed,
                            StreamRef stream);

// silu(temb) in FP32 and one cast, [T, K]: to `plain` in C order, or to `packed`; one may be null.
absl::Status LaunchBf16Silu(SiluKind kind, const float* temb, int64_t rows, int64_t inputs,
                            uint16_t* plain, uint16_t* packed, StreamRef stream);

// workspace: Bf16BackwardInputBytes.
int64_t Bf16BackwardInputBytes(const Shape& shape);
absl::Status LaunchBf16BackwardInput(const Bf16BackwardInput& problem, void* workspace,
                                     StreamRef stream);
absl::Status LaunchBf16BackwardWeight(const Bf16BackwardWeight& problem, StreamRef stream);

// g [T, N] in FP32: grad_y times the gradient of the activation at pre.
absl::Status LaunchBf16Gradient(Activation activation, const Operand& grad_y, const float* pre,
                                int64_t elements, float* g, StreamRef stream);

}  // namespace rlk::linear
