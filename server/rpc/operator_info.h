// A method of the registry as the message that ListOperators returns.
#pragma once

#include "kernels/registry/registry.h"
#include "rlk/v1/server.pb.h"

namespace rlk::server {

// Tensor and attribute options are those of the proto descriptors; contracts, arithmetic, claims
// and availability are the registry's. `device` is the CUDA device, zeros where there is none.
void FillMethodInfo(const Registry& registry, const DeviceTraits& device, const Method& method,
                    rlk::v1::MethodInfo& out);

}  // namespace rlk::server
