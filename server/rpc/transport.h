// What concerns HTTP/2: bounds of connections, keepalive, memory that gRPC may buffer.
#pragma once

#include <grpcpp/server_builder.h>

#include <cstdint>

#include "kernels/core/limits.h"

namespace rlk::server {

struct Transport {
  Limits limits;
  int64_t keepalive_ms = 0, keepalive_timeout_ms = 0;
};

void ConfigureTransport(const Transport& transport, grpc::ServerBuilder& builder);

}  // namespace rlk::server
