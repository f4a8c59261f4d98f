#include "server/rpc/parity_calls.h"

#include <utility>

#include "kernels/core/status.h"
#include "server/rpc/invocation.h"
#include "server/rpc/session_auth.h"

namespace rlk::server {

absl::StatusOr<std::shared_ptr<Session>> EnterParity(const ParityServiceContext& service,
                                                     const IncomingCall& call) {
  if (!service.engine->serving()) {
    return MakeError(absl::StatusCode::kUnavailable, {Reason::kDraining, {}, {}, {}},
                     "the server is shutting down");
  }
  return EnterSession(call, *service.sessions, service.engine->options().limits.session_calls_max);
}

grpc::ServerUnaryReactor* RefuseParity(const ParityServiceContext& service,
                                       grpc::CallbackServerContext* context,
                                       const absl::Status& status) {
  CountRefusal(service.pooled(), status);
  return FinishUnary(context, status);
}

absl::StatusOr<ParityTensor> TakeTensor(const ParityServiceContext& service,
                                        const std::shared_ptr<Session>& session,
                                        std::string_view name, int field_number,
                                        const rlk::v1::Tensor* tensor,
                                        std::vector<wire::Payload>& payloads) {
  if (tensor == nullptr) {
    return InvalidArgument(Reason::kMissingTensor, name, {}, "a tensor", "the tensor is missing");
  }
  HostBytes* payload = nullptr;
  for (wire::Payload& candidate : payloads) {
    if (candidate.field_number == field_number) payload = &candidate.bytes;
  }
  RLK_ASSIGN_OR_RETURN(TensorArg arg, wire::DecodeTensor(AnyTensor(name), name, *tensor, payload,
                                                         service.engine->options().limits));
  switch (arg.source) {
    case TensorSource::kInline:
      break;
    case TensorSource::kResident:
      RLK_RETURN_IF_ERROR(service.store->Resolve(session.get(), name, arg));
      break;
    case TensorSource::kArena:
      return InvalidArgument(Reason::kSourceNotSupported, name, "arena", "data, resident",
                             "a comparison takes no tensor that its caller can write meanwhile");
  }
  return MakeParityTensor(name, arg, service.devices);
}

}  // namespace rlk::server
