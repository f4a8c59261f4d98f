// SessionService, and the messages about sessions.
#pragma once

#include <grpcpp/impl/codegen/service_type.h>

#include <memory>
#include <string>

#include "kernels/core/limits.h"
#include "rlk/v1/session.pb.h"
#include "server/rpc/gate.h"
#include "server/sessions/session_table.h"
#include "server/tensors/arena_store.h"
#include "server/tensors/tensor_store.h"

namespace rlk::server {

// Nothing is owned; everything outlives the gRPC server.
struct SessionServiceContext {
  SessionTable* sessions = nullptr;
  const TensorStore* store = nullptr;
  ArenaStore* arenas = nullptr;
  Limits limits;
  std::string server_id;
};

// `context` and `gate` outlive the service; a null gate lets everybody in. So for all services.
std::unique_ptr<grpc::Service> MakeSessionService(const SessionServiceContext& context,
                                                  const Gate* gate);

// What a caller is told of its new session.
rlk::v1::OpenSessionResponse DescribeSession(const SessionServiceContext& context,
                                             const Session& session);

}  // namespace rlk::server
