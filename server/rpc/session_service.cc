#include "server/rpc/session_service.h"

#include "rlk/v1/session.grpc.pb.h"
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
}

using Generated = rlk::v1::SessionService;
using RawService =
    Generated::WithRawCallbackMethod_OpenSession<Generated::WithRawCallbackMethod_RenewSession<
        Generated::WithRawCallbackMethod_CloseSession<Generated::Service>>>;

class SessionService final : public RawService {
 public:
  explicit SessionService(const SessionServiceContext& context) : context_(context) {}

  grpc::ServerUnaryReactor* OpenSession(grpc::CallbackServerContext* call,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* reply) override {
    return FinishUnary(call, Open(*request), reply);
  }

  grpc::ServerUnaryReactor* RenewSession(grpc::CallbackServerContext* call,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* reply) override {
    return FinishUnary(call, Renew(*call, *request), reply);
  }

  grpc::ServerUnaryReactor* CloseSession(grpc::CallbackServerContext* call,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* reply) override {
    return FinishUnary(call, Close(*call, *request), reply);
  }

 private:
  absl::StatusOr<rlk::v1::OpenSessionResponse> Open(const grpc::ByteBuffer& bytes) {
    RLK_ASSIGN_OR_RETURN(const auto request, ParseRequest<rlk::v1::OpenSessionRequest>(bytes));
    RLK_ASSIGN_OR_RETURN(const auto session, context_.sessions->OpenLeased(request.lease_ms()));
    return DescribeSession(context_, *session);
  }

  absl::StatusOr<rlk::v1::RenewSessionResponse> Renew(const grpc::CallbackServerContext& call,
                                                      const grpc::ByteBuffer& bytes) {
    RLK_ASSIGN_OR_RETURN(const auto request, ParseRequest<rlk::v1::RenewSessionRequest>(bytes));
    RLK_ASSIGN_OR_RETURN(const auto session, RequireSession(call, *context_.sessions));
    RLK_RETURN_IF_ERROR(context_.sessions->Renew(*session, request.lease_ms()));
    rlk::v1::RenewSessionResponse response;
    response.set_lease_ms(session->lease_ms());
    FillBudget(context_, *session, *response.mutable_budget());
    return response;
  }

  absl::StatusOr<rlk::v1::CloseSessionResponse> Close(const grpc::CallbackServerContext& call,
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

std::unique_ptr<grpc::Service> MakeSessionService(const SessionServiceContext& context) {
  return std::make_unique<SessionService>(context);
}

}  // namespace rlk::server
