// The CUDA variants of contract h3-det-linear-bf16-mma-v1, in a build that has them.
#pragma once

#include <vector>

#include "kernels/ops/det_linear/det_linear.h"

namespace rlk {

std::vector<Variant> DetLinearBf16CudaVariants(det_linear::Kind kind);

}  // namespace rlk
