// The BF16 linear on CUDA devices whose tensor-core step follows the law t25x16. All pointers are
// device memory.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/core/stream_ref.h"
#include "kernels/linear/bf16_problem.h"

namespace rlk::linear {

// By `mma.sync`, eight rows at a time. With `after_silu` x is what the launch ahead on the stream,
// LaunchBf16Silu, writes, and the kernel begins before that ends.
absl::Status LaunchBf16ForwardMma(const Bf16Linear& problem, StreamRef stream,
                                  bool after_silu = false);

// By `wgmma` (compute capability 9.0). workspace: Bf16WgmmaBytes, aligned to 256; it begins with
// what LaunchBf16Pack or LaunchBf16Silu made of x in the launch ahead on the stream, before whose
// end the kernel begins; x itself is not read.
int64_t Bf16WgmmaBytes(const Bf16Linear& problem);
absl::Status LaunchBf16ForwardWgmma(const Bf16Linear& problem, void* workspace, StreamRef stream);

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
