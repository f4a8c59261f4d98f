#include "server/rpc/parity_calls.h"

#include <chrono>
#include <optional>
#include <string>

#include "kernels/core/status.h"
#include "server/parity/exception_status.h"
#include "server/rpc/invocation.h"
#include "server/rpc/session_auth.h"
#include "server/rpc/status_map.h"

namespace rlk::server {
namespace {

using std::chrono::steady_clock;

steady_clock::time_point SteadyDeadline(const grpc::CallbackServerContext& context) {
  const auto left = context.deadline() - std::chrono::system_clock::now();
  // A client may name a deadline of centuries, which would overflow.
  constexpr auto kFar = std::chrono::hours(24 * 365);
  if (left > kFar) return steady_clock::time_point::max();
  return steady_clock::now() + left;
}

void Count(const ParityServiceContext& service, const absl::Status& status) {
  if (status.ok() || !service.on_rejected) return;
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  service.on_rejected(detail ? detail->reason : Reason::kInternal);
}

}  // namespace

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
  Count(service, status);
  return FinishUnary(context, status);
}

grpc::ServerUnaryReactor* RunOnPool(
    const ParityServiceContext& service, grpc::CallbackServerContext* context,
    std::shared_ptr<Session> session, grpc::ByteBuffer* reply,
    std::function<absl::StatusOr<std::unique_ptr<google::protobuf::Message>>(const Interrupt&)>
        work) {
  EchoTraceparent(context);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  service.counter->Enter();
  const auto finish = [&service, reactor, session](const absl::Status& status) {
    Count(service, status);
    if (session != nullptr) session->LeaveCall();
    // From here on the reactor and the context may be gone.
    reactor->Finish(ToGrpcStatus(status));
    service.counter->Leave();
  };
  const Interrupt interrupt = {SteadyDeadline(*context),
                               [context, session] {
                                 return context->IsCancelled() ||
                                        (session != nullptr && session->ended());
                               },
                               service.ending};
  const absl::Status taken =
      service.pool->Submit(interrupt, [&service, finish, reply, work = std::move(work)](
                                          const Interrupt& turn, absl::Status status) mutable {
        if (status.ok()) {
          try {
            const auto response = work(turn);
            status = response.status();
            if (response.ok()) {
              FillReply(**response, reply);
            } else if (service.ending != nullptr && *service.ending) {
              // Not what a peer or the engine made of it.
              const absl::Status end = turn.Check();
              if (!end.ok()) status = end;
            }
          } catch (...) {
            status = StatusOfException();
          }
        }
        // What the call held is given back before the caller hears of the end.
        work = nullptr;
        finish(status);
      });
  if (!taken.ok()) finish(taken);
  return reactor;
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
