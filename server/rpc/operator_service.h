// All operator methods of one proto service, served from the descriptors: raw bytes in, raw bytes
// out, tensor payloads never copied. No generated stub and no code per operator.
#pragma once

#include <grpcpp/impl/codegen/service_type.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/descriptor.h"
#include "server/engine/engine.h"
#include "server/log/log.h"
#include "server/rpc/call_counter.h"
#include "server/rpc/gate.h"
#include "server/sessions/session_table.h"

namespace rlk::server {

// What the handlers need. Nothing is owned; everything outlives the gRPC server.
struct OperatorServiceContext {
  Engine* engine = nullptr;
  // Told about calls that the engine never sees (undecodable ones); may be null.
  Observer* observer = nullptr;
  const Logger* logger = nullptr;
  std::string provenance_id;
  // Nanoseconds from handing a reply to the transport until the transport is done with it.
  std::function<void(int64_t ns)> on_sent;
  // May be null: then tokens are not looked at.
  SessionTable* sessions = nullptr;
  // Counts the calls whose reply is not yet sent; may be null.
  CallCounter* counter = nullptr;
};

// `service` has operator methods only, each bound in engine->registry(). `context` and `gate`
// outlive the returned service. INTERNAL where a method is not bound.
absl::StatusOr<std::unique_ptr<grpc::Service>> MakeOperatorService(
    const google::protobuf::ServiceDescriptor* service, const OperatorServiceContext& context,
    const Gate* gate);

}  // namespace rlk::server
