// The cuda backend of det_linear. In builds with CUDA only.
#pragma once

#include <vector>

#include "kernels/ops/det_linear/det_linear.h"

namespace rlk {

std::vector<Variant> DetLinearCudaVariants(det_linear::Kind kind);

}  // namespace rlk
