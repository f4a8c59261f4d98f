// The CUDA variants of the RMSNorm family, in a build that has them.
#pragma once

#include <vector>

#include "kernels/registry/registry.h"

namespace rlk {

// Variants of one method for its portable contracts (those but golden-f64), with claim L3.
std::vector<Variant> RmsNormCudaVariants(const std::vector<Contract>& contracts, bool backward);

}  // namespace rlk
