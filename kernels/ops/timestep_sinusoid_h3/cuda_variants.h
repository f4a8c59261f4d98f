// The cuda backend of timestep_sinusoid_h3. In builds with CUDA only.
#pragma once

#include <vector>

#include "kernels/ops/timestep_sinusoid_h3/timestep_sinusoid_h3.h"

namespace rlk {

std::vector<Variant> TimestepSinusoidCudaVariants(bool backward, bool offer_h3);

// Whether CUDA's functions on the device have the bits that h3-v1 names, by a stored digest.
bool HasH3Functions(int ordinal);

}  // namespace rlk
