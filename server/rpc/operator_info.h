// A method of the registry as the message that ListOperators returns.
#pragma once

#include "kernels/registry/registry.h"
#include "rlk/v1/server.pb.h"

namespace rlk::server {

// Tensor and attribute options are those of the proto descriptors; contracts, arithmetic, claims
// and availability are the registry's. `compute_capability` (10 * major + minor) is that of the
// CUDA device, 0 where there is none.
void FillMethodInfo(const Registry& registry, int compute_capability, const Method& method,
                    rlk::v1::MethodInfo& out);

}  // namespace rlk::server
