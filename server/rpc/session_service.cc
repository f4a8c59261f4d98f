#include "server/rpc/session_service.h"

#include "server/rpc/raw_service.h"
#include "server/rpc/session_auth.h"
#include "server/rpc/unary.h"

namespace rlk::server {
namespace {

void FillBudget(const SessionServiceContext& context, const Session& session,
                rlk::v1::SessionBudget& out) {
  const Usage usage = context.store->usage(session.id());
  out.set_resident_bytes_max(context.limits.session_resident_bytes_max);
  out.set_resident_bytes(usage.bytes);
  out.set_tensors_max(context.limits.session_tensors_max);
  out.set_tensors(usage.tensors);
  out.set_calls_max(context.limits.session_calls_max);
  const Usage arenas = context.arenas->usage(session.id());
  out.set_arena_bytes_max(context.limits.session_arena_bytes_max);
  out.set_arena_bytes(arenas.bytes);
  out.set_arenas_max(context.limits.session_arenas_max);
  out.set_arenas(arenas.tensors);
}

class SessionService final : public RawService {
 public:
  SessionService(const SessionServiceContext& context, const Gate* gate)
      : RawService(gate), context_(context) {
    Add("OpenSession", &SessionService::Open);
    Add("RenewSession", &SessionService::Renew);
    Add("CloseSession", &SessionService::Close);
  }

 private:
  template <typename Response>
  void Add(const char* method,
           absl::StatusOr<Response> (SessionService::*handler)(const IncomingCall&,
                                                               const grpc::ByteBuffer&)) {
    AddUnary(std::string("/rlk.v1.SessionService/") + method,
             [this, handler](const IncomingCall& call, const grpc::ByteBuffer& request,
                             grpc::ByteBuffer* reply) {
               return FinishUnary(call.context, (this->*handler)(call, request), reply);
             });
  }

  absl::StatusOr<rlk::v1::OpenSessionResponse> Open(const IncomingCall& call,
                                                    const grpc::ByteBuffer& bytes) {
    RLK_ASSIGN_OR_RETURN(const auto request, ParseRequest<rlk::v1::OpenSessionRequest>(bytes));
    RLK_ASSIGN_OR_RETURN(const auto session,
                         context_.sessions->OpenLeased(request.lease_ms(), call.account));
    return DescribeSession(context_, *session);
  }

  absl::StatusOr<rlk::v1::RenewSessionResponse> Renew(const IncomingCall& call,
                                                      const grpc::ByteBuffer& bytes) {
    RLK_ASSIGN_OR_RETURN(const auto request, ParseRequest<rlk::v1::RenewSessionRequest>(bytes));
    RLK_ASSIGN_OR_RETURN(const auto session, RequireSession(call, *context_.sessions));
    RLK_RETURN_IF_ERROR(context_.sessions->Renew(*session, request.lease_ms()));
    rlk::v1::RenewSessionResponse response;
    response.set_lease_ms(session->lease_ms());
    FillBudget(context_, *session, *response.mutable_budget());
    return response;
  }

  absl::StatusOr<rlk::v1::CloseSessionResponse> Close(const IncomingCall& call,
                                                      const grpc::ByteBuffer& bytes) {
    RLK_RETURN_IF_ERROR(ParseRequest<rlk::v1::CloseSessionRequest>(bytes).status());
    RLK_ASSIGN_OR_RETURN(const auto session, RequireSession(call, *context_.sessions));
    context_.sessions->End(session);
    return rlk::v1::CloseSessionResponse();
  }

  const SessionServiceContext& context_;
};

}  // namespace

rlk::v1::OpenSessionResponse DescribeSession(const SessionServiceContext& context,
                                             const Session& session) {
  rlk::v1::OpenSessionResponse response;
  response.set_token(session.token());
  response.set_lease_ms(session.lease_ms());
  response.set_server_id(context.server_id);
  FillBudget(context, session, *response.mutable_budget());
  return response;
}

std::unique_ptr<grpc::Service> MakeSessionService(const SessionServiceContext& context,
                                                  const Gate* gate) {
  return std::make_unique<SessionService>(context, gate);
}

}  // namespace rlk::server
