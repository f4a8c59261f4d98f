#include "server/rpc/raw_service.h"

#include <grpcpp/impl/codegen/rpc_method.h>
#include <grpcpp/impl/codegen/rpc_service_method.h>
#include <grpcpp/server_context.h>

// Completes the raw callback handler types; this order is needed.
#include <grpcpp/impl/codegen/server_callback_handlers.h>

#include <utility>

#include "kernels/core/status.h"
#include "server/rpc/status_map.h"

namespace rlk::server {
namespace {

using grpc::ByteBuffer;
using grpc::internal::RpcMethod;
using grpc::internal::RpcServiceMethod;

// A stream that ends at once.
template <typename Reactor>
class Refusal final : public Reactor {
 public:
  explicit Refusal(const grpc::Status& status) { this->Finish(status); }
  void OnDone() override { delete this; }
};

grpc::ServerUnaryReactor* RefuseUnary(grpc::CallbackServerContext* context,
                                      const absl::Status& status) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

// Whose call it is.
absl::StatusOr<IncomingCall> Enter(const Gate* gate, grpc::CallbackServerContext* context) {
  IncomingCall call{context, nullptr};
  if (gate != nullptr) {
    RLK_ASSIGN_OR_RETURN(call.account, gate->Admit(*context));
  }
  return call;
}

}  // namespace

void RawService::AddUnary(const std::string& path, Unary handler) {
  AddMethod(new RpcServiceMethod(Keep(path), RpcMethod::NORMAL_RPC, nullptr));
  MarkMethodRawCallback(methods_++,
                        new grpc::internal::CallbackUnaryHandler<ByteBuffer, ByteBuffer>(
                            [gate = gate_, handler = std::move(handler)](
                                grpc::CallbackServerContext* context, const ByteBuffer* request,
                                ByteBuffer* reply) -> grpc::ServerUnaryReactor* {
                              const absl::StatusOr<IncomingCall> call = Enter(gate, context);
                              if (!call.ok()) return RefuseUnary(context, call.status());
                              return handler(*call, *request, reply);
                            }));
}

void RawService::AddClientStream(const std::string& path, ClientStream handler) {
  AddMethod(new RpcServiceMethod(Keep(path), RpcMethod::CLIENT_STREAMING, nullptr));
  MarkMethodRawCallback(
      methods_++,
      new grpc::internal::CallbackClientStreamingHandler<ByteBuffer, ByteBuffer>(
          [gate = gate_, handler = std::move(handler)](
              grpc::CallbackServerContext* context,
              ByteBuffer* reply) -> grpc::ServerReadReactor<ByteBuffer>* {
            const absl::StatusOr<IncomingCall> call = Enter(gate, context);
            if (call.ok()) return handler(*call, reply);
            return new Refusal<grpc::ServerReadReactor<ByteBuffer>>(ToGrpcStatus(call.status()));
          }));
}

void RawService::AddServerStream(const std::string& path, ServerStream handler) {
  AddMethod(new RpcServiceMethod(Keep(path), RpcMethod::SERVER_STREAMING, nullptr));
  MarkMethodRawCallback(
      methods_++,
      new grpc::internal::CallbackServerStreamingHandler<ByteBuffer, ByteBuffer>(
          [gate = gate_, handler = std::move(handler)](
              grpc::CallbackServerContext* context,
              const ByteBuffer* request) -> grpc::ServerWriteReactor<ByteBuffer>* {
            const absl::StatusOr<IncomingCall> call = Enter(gate, context);
            if (call.ok()) return handler(*call, *request);
            return new Refusal<grpc::ServerWriteReactor<ByteBuffer>>(ToGrpcStatus(call.status()));
          }));
}

void RawService::AddBidiStream(const std::string& path, BidiStream handler) {
  AddMethod(new RpcServiceMethod(Keep(path), RpcMethod::BIDI_STREAMING, nullptr));
  MarkMethodRawCallback(
      methods_++,
      new grpc::internal::CallbackBidiHandler<ByteBuffer, ByteBuffer>(
          [gate = gate_, handler = std::move(handler)](grpc::CallbackServerContext* context)
              -> grpc::ServerBidiReactor<ByteBuffer, ByteBuffer>* {
            const absl::StatusOr<IncomingCall> call = Enter(gate, context);
            if (call.ok()) return handler(*call);
            return new Refusal<grpc::ServerBidiReactor<ByteBuffer, ByteBuffer>>(
                ToGrpcStatus(call.status()));
          }));
}

std::unique_ptr<grpc::CallbackGenericService> MakeUnknownMethods(const Gate* gate) {
  class Unknown final : public grpc::CallbackGenericService {
   public:
    explicit Unknown(const Gate* gate) : gate_(gate) {}
    grpc::ServerGenericBidiReactor* CreateReactor(
        grpc::GenericCallbackServerContext* context) override {
      const absl::StatusOr<IncomingCall> call = Enter(gate_, context);
      return new Refusal<grpc::ServerGenericBidiReactor>(
          call.ok() ? grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "")
                    : ToGrpcStatus(call.status()));
    }

   private:
    const Gate* const gate_;
  };
  return std::make_unique<Unknown>(gate);
}

}  // namespace rlk::server
