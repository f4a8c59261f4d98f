// ParityService: whether two sides compute the same.
#pragma once

#include <grpcpp/impl/codegen/service_type.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "server/engine/engine.h"
#include "server/log/log.h"
#include "server/parity/comparison.h"
#include "server/parity/work_pool.h"
#include "server/rpc/call_counter.h"
#include "server/rpc/gate.h"
#include "server/rpc/parity_check.h"
#include "server/rpc/pool_call.h"
#include "server/sessions/session_table.h"
#include "server/tensors/tensor_store.h"

namespace rlk::server {

// What the handlers need. Nothing is owned; everything outlives the gRPC server.
struct ParityServiceContext {
  const Engine* engine = nullptr;
  SessionTable* sessions = nullptr;
  TensorStore* store = nullptr;
  // The engine's, to read tensors where they lie.
  std::vector<Device*> devices;
  WorkPool* pool = nullptr;
  const Logger* logger = nullptr;
  // Counts the calls in flight; a drain waits for them.
  CallCounter* counter = nullptr;
  // True where calls in flight are to end. May be null.
  const std::atomic<bool>* ending = nullptr;
  // Of every comparison that a caller gets.
  std::function<void(const Comparison& comparison)> on_comparison;
  // Of a refusal.
  std::function<void(Reason reason)> on_rejected;
  // What checks need besides.
  ParityCheckContext checks;

  PoolContext pooled() const { return {pool, counter, ending, on_rejected}; }
  ComparisonContext comparison() const { return {&engine->tolerance(), nullptr}; }
};

// `context` and `gate` outlive the service.
std::unique_ptr<grpc::Service> MakeParityService(const ParityServiceContext& context,
                                                 const Gate* gate);

// Answers with an error, and counts it.
grpc::ServerUnaryReactor* RefuseParity(const ParityServiceContext& service,
                                       grpc::CallbackServerContext* context,
                                       const absl::Status& status);

}  // namespace rlk::server
