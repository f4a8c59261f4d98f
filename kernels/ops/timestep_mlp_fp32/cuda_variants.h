// The cuda backend of timestep_mlp_fp32. In builds with CUDA only.
#pragma once

#include <vector>

#include "kernels/ops/timestep_mlp_fp32/timestep_mlp_fp32.h"

namespace rlk {

std::vector<Variant> TimestepMlpCudaVariants(bool backward);

}  // namespace rlk
