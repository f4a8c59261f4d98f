#include "server/rpc/raw_service.h"

#include <grpcpp/impl/codegen/rpc_method.h>
#include <grpcpp/impl/codegen/rpc_service_method.h>
#include <grpcpp/server_context.h>

// Completes the raw callback handler types; this order is needed.
#include <grpcpp/impl/codegen/server_callback_handlers.h>

#include <atomic>
#include <utility>

#include "kernels/core/status.h"
#include "server/rpc/status_map.h"
#include "server/rpc/unary.h"

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

// A call that ended before its message: nobody's mistake where the caller cancelled it or its
// deadline passed. Which of the two it was is known at its end alone: gRPC may hand out a call
// before it says that the caller is gone.
template <typename Reactor>
class Messageless final : public Reactor {
 public:
  Messageless(grpc::CallbackServerContext* context, const OnMessageless& on_end)
      : deadline_(context->deadline()), on_end_(on_end) {
    EchoTraceparent(context);
    this->Finish(ToGrpcStatus(Missing()));
  }

  void OnCancel() override { gone_.store(true, std::memory_order_relaxed); }
  void OnDone() override {
    if (on_end_) on_end_(Verdict(), std::chrono::steady_clock::now() - received_);
    delete this;
  }

 private:
  // They do nothing that blocks: no hop to another thread for them.
  bool InternalInlineable() override { return true; }

  static absl::Status Missing() {
    return InvalidArgument(Reason::kMalformedMessage, "request", "no message", "one message",
                           "the call has no message");
  }

  absl::Status Verdict() const {
    if (!gone_.load(std::memory_order_relaxed)) return Missing();
    // gRPC's timers count whole milliseconds.
    const auto late_from = std::chrono::system_clock::now() + std::chrono::milliseconds(1);
    const bool late = late_from >= deadline_;
    return MakeError(late ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kCancelled,
                     {late ? Reason::kDeadlineExceeded : Reason::kCancelled, {}, {}, {}},
                     "the caller was gone before the message came");
  }

  const std::chrono::steady_clock::time_point received_ = std::chrono::steady_clock::now();
  const std::chrono::system_clock::time_point deadline_;
  const OnMessageless& on_end_;
  std::atomic<bool> gone_ = false;
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

void RawService::AddUnary(const std::string& path, Unary handler, OnMessageless on_messageless) {
  AddMethod(new RpcServiceMethod(Keep(path), RpcMethod::NORMAL_RPC, nullptr));
  MarkMethodRawCallback(
      methods_++,
      new grpc::internal::CallbackUnaryHandler<ByteBuffer, ByteBuffer>(
          [gate = gate_, handler = std::move(handler), on_messageless = std::move(on_messageless)](
              grpc::CallbackServerContext* context, const ByteBuffer* request,
              ByteBuffer* reply) -> grpc::ServerUnaryReactor* {
            const absl::StatusOr<IncomingCall> call = Enter(gate, context);
            if (!call.ok()) return RefuseUnary(context, call.status());
            if (request->Valid()) return handler(*call, *request, reply);
            return new Messageless<grpc::ServerUnaryReactor>(context, on_messageless);
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

void RawService::AddServerStream(const std::string& path, ServerStream handler,
                                 OnMessageless on_messageless) {
  AddMethod(new RpcServiceMethod(Keep(path), RpcMethod::SERVER_STREAMING, nullptr));
  MarkMethodRawCallback(
      methods_++,
      new grpc::internal::CallbackServerStreamingHandler<ByteBuffer, ByteBuffer>(
          [gate = gate_, handler = std::move(handler), on_messageless = std::move(on_messageless)](
              grpc::CallbackServerContext* context,
              const ByteBuffer* request) -> grpc::ServerWriteReactor<ByteBuffer>* {
            using Stream = grpc::ServerWriteReactor<ByteBuffer>;
            const absl::StatusOr<IncomingCall> call = Enter(gate, context);
            if (!call.ok()) return new Refusal<Stream>(ToGrpcStatus(call.status()));
            if (request->Valid()) return handler(*call, *request);
            return new Messageless<Stream>(context, on_messageless);
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
