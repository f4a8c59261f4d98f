// The CUDA variant of contract bf16-k128-v1, in a build that has it.
#pragma once

#include "kernels/ops/det_linear/det_linear.h"

namespace rlk::det_linear {

// For every activation.
Variant K128CudaVariant(Kind kind);

}  // namespace rlk::det_linear
