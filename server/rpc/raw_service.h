// Services whose methods take and give bytes. Every method that this program serves is added here,
// but for grpc.health.v1: so nothing runs before the gate has looked at its credential. It is also
// the one place that touches gRPC's internals.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/impl/codegen/service_type.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "server/rpc/gate.h"
#include "server/rpc/incoming_call.h"

namespace rlk::server {

// Told of a call whose message never came, when the transport is done with it: CANCELLED or
// DEADLINE_EXCEEDED where its caller was gone before, else INVALID_ARGUMENT (kMalformedMessage);
// and how long it was there.
using OnMessageless =
    std::function<void(const absl::Status& status, std::chrono::nanoseconds total)>;

// Methods are added before the service is registered. A path is "/PACKAGE.SERVICE/METHOD".
class RawService : public grpc::Service {
 public:
  // Null lets everybody in. The gate outlives the service.
  explicit RawService(const Gate* gate) : gate_(gate) {}

 protected:
  using Unary = std::function<grpc::ServerUnaryReactor*(
      const IncomingCall& call, const grpc::ByteBuffer& request, grpc::ByteBuffer* reply)>;
  using ClientStream = std::function<grpc::ServerReadReactor<grpc::ByteBuffer>*(
      const IncomingCall& call, grpc::ByteBuffer* reply)>;
  using ServerStream = std::function<grpc::ServerWriteReactor<grpc::ByteBuffer>*(
      const IncomingCall& call, const grpc::ByteBuffer& request)>;
  using BidiStream = std::function<grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>*(
      const IncomingCall& call)>;

  // Handlers see calls whose message is there. Of the others `on_messageless` is told, if not null.
  void AddUnary(const std::string& path, Unary handler, OnMessageless on_messageless = nullptr);
  void AddClientStream(const std::string& path, ClientStream handler);
  void AddServerStream(const std::string& path, ServerStream handler,
                       OnMessageless on_messageless = nullptr);
  void AddBidiStream(const std::string& path, BidiStream handler);

 private:
  // gRPC keeps the pointer to a path.
  const char* Keep(const std::string& path) { return paths_.emplace_back(path).c_str(); }

  const Gate* const gate_;
  int methods_ = 0;
  std::deque<std::string> paths_;
};

// Answers calls of methods that nobody serves: a caller without a credential does not learn which
// there are.
std::unique_ptr<grpc::CallbackGenericService> MakeUnknownMethods(const Gate* gate);

}  // namespace rlk::server
