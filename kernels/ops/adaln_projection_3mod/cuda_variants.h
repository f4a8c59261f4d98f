// The CUDA variants of adaln_projection_3mod, in a build that has them.
#pragma once

#include <vector>

#include "kernels/registry/registry.h"

namespace rlk {

// Of the two forwards, or of the backward; contracts portable-v1 and, if offered, h3-v1; BF16
// weights.
std::vector<Variant> AdalnCudaVariants(bool backward, bool offer_h3);

}  // namespace rlk
