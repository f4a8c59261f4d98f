// How the methods of ParityService run: decoded where they arrive, worked on by the pool, answered
// from there.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/wire/call_parts.h"
#include "proto/wire/codec.h"
#include "rlk/v1/tensor.pb.h"
#include "server/parity/comparison.h"
#include "server/parity/interrupt.h"
#include "server/parity/parity_tensor.h"
#include "server/rpc/byte_buffer.h"
#include "server/rpc/incoming_call.h"
#include "server/rpc/parity_service.h"
#include "server/rpc/pool_call.h"
#include "server/rpc/unary.h"

namespace rlk::server {

// A call that waits for the pool, or has a thread of it.
template <typename Request>
struct ParityCall {
  Request request;
  std::vector<wire::Payload> payloads;
  // Null without one.
  std::shared_ptr<Session> session;
  Interrupt interrupt;
};

// Refuses a call while the server drains, and finds its session, which then counts it.
absl::StatusOr<std::shared_ptr<Session>> EnterParity(const ParityServiceContext& service,
                                                     const IncomingCall& call);

template <typename Request>
absl::StatusOr<std::shared_ptr<ParityCall<Request>>> DecodeParity(
    const ParityServiceContext& service, const IncomingCall& incoming,
    const grpc::ByteBuffer& bytes, int64_t header_bytes_max) {
  const Limits& limits = service.engine->options().limits;
  RLK_ASSIGN_OR_RETURN(const wire::InputBytes input, TakeSlices(bytes));
  RLK_RETURN_IF_ERROR(wire::CheckMessageSize(input, limits));
  RLK_ASSIGN_OR_RETURN(
      wire::SplitMessage split,
      wire::Split(Request::descriptor(), input, limits.tensors_per_call_max, header_bytes_max));
  auto call = std::make_shared<ParityCall<Request>>();
  call->request = std::move(static_cast<Request&>(*split.message));
  call->payloads = std::move(split.payloads);
  RLK_ASSIGN_OR_RETURN(call->session, EnterParity(service, incoming));
  return call;
}

// A handler: `work` takes the call and gives a response. `header_bytes_max` bounds the message
// besides payloads that are tensors of its own; absent, as in all calls.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* HandleParity(
    const ParityServiceContext& service, const IncomingCall& incoming,
    const grpc::ByteBuffer& bytes, grpc::ByteBuffer* reply,
    std::function<absl::StatusOr<Response>(ParityCall<Request>&)> work,
    std::optional<int64_t> header_bytes_max = std::nullopt) {
  auto decoded = DecodeParity<Request>(
      service, incoming, bytes,
      header_bytes_max.value_or(service.engine->options().limits.header_bytes_max));
  if (!decoded.ok()) return RefuseParity(service, incoming.context, decoded.status());
  const std::shared_ptr<ParityCall<Request>> call = *std::move(decoded);
  return RunOnPool(service.pooled(), incoming.context, call->session, reply,
                   [call, work = std::move(work)](const Interrupt& interrupt)
                       -> absl::StatusOr<std::unique_ptr<google::protobuf::Message>> {
                     call->interrupt = interrupt;
                     RLK_ASSIGN_OR_RETURN(Response response, work(*call));
                     return std::make_unique<Response>(std::move(response));
                   });
}

// The tensor of field `field_number`, which `name` names in errors: decoded, found where it is
// resident, and brought into C order. INVALID_ARGUMENT (kMissingTensor) where it is not given.
absl::StatusOr<ParityTensor> TakeTensor(const ParityServiceContext& service,
                                        const std::shared_ptr<Session>& session,
                                        std::string_view name, int field_number,
                                        const rlk::v1::Tensor* tensor,
                                        std::vector<wire::Payload>& payloads);

}  // namespace rlk::server
