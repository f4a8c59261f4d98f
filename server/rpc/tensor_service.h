// TensorService: tensors that stay on the server, in and out.
#pragma once

#include <grpcpp/impl/codegen/service_type.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/engine/engine.h"
#include "server/log/log.h"
#include "server/rpc/call_counter.h"
#include "server/rpc/gate.h"
#include "server/rpc/pool_call.h"
#include "server/sessions/session_table.h"
#include "server/tensors/tensor_store.h"

namespace rlk::server {

// What the handlers need. Nothing is owned; everything outlives the gRPC server.
struct TensorServiceContext {
  const Engine* engine = nullptr;
  SessionTable* sessions = nullptr;
  TensorStore* store = nullptr;
  const Logger* logger = nullptr;
  // Counts the streams in flight; a drain waits for them.
  CallCounter* counter = nullptr;
  // Bytes of a stream that ended, in or out.
  std::function<void(bool in, int64_t bytes)> on_stream_bytes;
  // Of a refusal.
  std::function<void(Reason reason)> on_rejected;
  // Files may be loaded from under it; empty for none.
  std::string weights_root;
  // Reads them.
  WorkPool* loads = nullptr;
  // True where calls in flight are to end. May be null.
  const std::atomic<bool>* ending = nullptr;

  PoolContext pooled() const { return {loads, counter, ending, on_rejected}; }
};

// `context` and `gate` outlive the service.
std::unique_ptr<grpc::Service> MakeTensorService(const TensorServiceContext& context,
                                                 const Gate* gate);

}  // namespace rlk::server
