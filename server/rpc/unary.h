// Unary methods that are not operators: messages of generated code, held to the same rules as those
// of operator calls. Generated handlers would keep unknown fields, and gRPC would answer bytes that
// it cannot parse with a bare UNIMPLEMENTED.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <utility>

#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "kernels/core/status.h"
#include "proto/wire/codec.h"
#include "server/rpc/byte_buffer.h"

namespace rlk::server {

// INVALID_ARGUMENT for what the codec refuses.
template <typename Request>
absl::StatusOr<Request> ParseRequest(const grpc::ByteBuffer& buffer) {
  RLK_ASSIGN_OR_RETURN(const wire::InputBytes bytes, TakeSlices(buffer));
  RLK_ASSIGN_OR_RETURN(wire::SplitMessage split, wire::Split(Request::descriptor(), bytes, 0));
  return std::move(static_cast<Request&>(*split.message));
}

// Echoes a W3C traceparent.
void EchoTraceparent(grpc::CallbackServerContext* context);

void FillReply(const google::protobuf::Message& message, grpc::ByteBuffer* reply);

grpc::ServerUnaryReactor* FinishUnary(grpc::CallbackServerContext* context,
                                      const absl::Status& status);
grpc::ServerUnaryReactor* FinishUnary(grpc::CallbackServerContext* context,
                                      const google::protobuf::Message& message,
                                      grpc::ByteBuffer* reply);
template <typename Response>
grpc::ServerUnaryReactor* FinishUnary(grpc::CallbackServerContext* context,
                                      const absl::StatusOr<Response>& response,
                                      grpc::ByteBuffer* reply) {
  if (!response.ok()) return FinishUnary(context, response.status());
  return FinishUnary(context, *response, reply);
}

}  // namespace rlk::server
