// Server reflection, v1 and v1alpha, through the same gate as everything else. gRPC's own plugin
// answers everybody.
#pragma once

#include <grpcpp/impl/codegen/service_type.h>

#include <memory>
#include <string>
#include <vector>

#include "server/rpc/gate.h"

namespace rlk::server {

// `services` are what a list shows, besides reflection itself.
std::unique_ptr<grpc::Service> MakeReflectionService(std::vector<std::string> services,
                                                     const Gate* gate);

}  // namespace rlk::server
