#include "server/rpc/unary.h"

#include <grpcpp/support/slice.h>

#include <string>

#include "server/rpc/status_map.h"
#include "server/rpc/trace_context.h"

namespace rlk::server {

void EchoTraceparent(grpc::CallbackServerContext* context) {
  const auto found = context->client_metadata().find("traceparent");
  if (found == context->client_metadata().end()) return;
  const std::string header(found->second.data(), found->second.size());
  if (ParseTraceparent(header)) context->AddTrailingMetadata("traceparent", header);
}

void FillReply(const google::protobuf::Message& message, grpc::ByteBuffer* reply) {
  const grpc::Slice slice(message.SerializeAsString());
  *reply = grpc::ByteBuffer(&slice, 1);
}

grpc::ServerUnaryReactor* FinishUnary(grpc::CallbackServerContext* context,
                                      const absl::Status& status) {
  EchoTraceparent(context);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

grpc::ServerUnaryReactor* FinishUnary(grpc::CallbackServerContext* context,
                                      const google::protobuf::Message& message,
                                      grpc::ByteBuffer* reply) {
  FillReply(message, reply);
  return FinishUnary(context, absl::OkStatus());
}

}  // namespace rlk::server
