// A method of the registry as the message that ListOperators returns.
#pragma once

#include "kernels/registry/registry.h"
#include "rlk/v1/server.pb.h"

namespace rlk::server {

// Tensor and attribute options are those of the proto descriptors; contracts, arithmetic, claims
// and availability are the registry's.
void FillMethodInfo(const Registry& registry, const Method& method, rlk::v1::MethodInfo& out);

}  // namespace rlk::server
