#include "client/cpp/session.h"

#include <algorithm>
#include <utility>

#include "client/cpp/channel.h"
#include "client/cpp/status_map.h"
#include "kernels/core/status.h"

namespace rlk::client {
namespace {

constexpr char kSessionKey[] = "rlk-session";
constexpr char kBearerKey[] = "authorization";
constexpr auto kCallTimeout = std::chrono::seconds(10);

std::string SidePath(const std::string& address) {
  return address.rfind("unix:", 0) == 0 ? address.substr(5) + ".side" : "";
}

}  // namespace

SessionHolder::SessionHolder(std::shared_ptr<grpc::Channel> channel, Options options)
    : stub_(rlk::v1::SessionService::NewStub(std::move(channel))),
      options_(std::move(options)),
      token_(options_.session_token) {}

SessionHolder::~SessionHolder() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  if (renewer_.joinable()) renewer_.join();
  if (side_ != nullptr) {
    side_->Close();
  } else if (own_) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(1));
    Attach(context);
    rlk::v1::CloseSessionResponse response;
    (void)stub_->CloseSession(&context, {}, &response);
  }
}

std::string SessionHolder::token() const {
  const std::lock_guard lock(mutex_);
  return token_;
}

void SessionHolder::Attach(grpc::ClientContext& context) const {
  if (!options_.bearer_token.empty()) {
    context.AddMetadata(kBearerKey, "Bearer " + options_.bearer_token);
  }
  const std::lock_guard lock(mutex_);
  if (!token_.empty()) context.AddMetadata(kSessionKey, token_);
}

absl::StatusOr<std::string> SessionHolder::Require() {
  const std::lock_guard opening(opening_);
  return Open(/*by_call=*/true);
}

absl::StatusOr<std::string> SessionHolder::Open(bool by_call) {
  if (std::string present = token(); !present.empty()) return present;
  if (options_.several) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition,
        {Reason::kWrongServer, "address", options_.address, "the address of one server"},
        "sessions, and tensors that stay or travel in streams, belong to one server");
  }
  absl::StatusOr<rlk::v1::OpenSessionResponse> opened = OpenBeside(SidePath(options_.address));
  if (side_ == nullptr) {
    missed_ = absl::IsUnavailable(opened.status()) || absl::IsResourceExhausted(opened.status())
                  ? opened.status()
                  : absl::OkStatus();
    if (!missed_.ok() && !by_call) return missed_;
    opened = OpenByCall();
  }
  if (!opened.ok()) return opened.status();
  if (opened->token().empty() || !CheckToken("session", opened->token()).ok()) {
    return absl::InternalError("the server opened a session without a token");
  }
  const std::lock_guard lock(mutex_);
  token_ = opened->token();
  own_ = true;
  if (opened->lease_ms() > 0) {
    renewer_ = std::thread([this, lease = opened->lease_ms()] {
      Renew(std::chrono::milliseconds(std::max<int64_t>(lease / 3, 1)));
    });
  }
  return token_;
}

absl::StatusOr<rlk::v1::OpenSessionResponse> SessionHolder::OpenBeside(const std::string& path) {
  RLK_ASSIGN_OR_RETURN(const std::shared_ptr<SideConnection> side, SideConnection::Connect(path));
  rlk::v1::SideRequest request;
  request.mutable_open_session();
  RLK_ASSIGN_OR_RETURN(const rlk::v1::SideReply reply, side->Ask(request));
  if (!reply.has_open_session()) return absl::InternalError("the side socket opened no session");
  side_ = side;
  return reply.open_session();
}

absl::StatusOr<std::shared_ptr<SideConnection>> SessionHolder::RequireSide() {
  const std::lock_guard opening(opening_);
  RLK_RETURN_IF_ERROR(Open(/*by_call=*/false).status());
  if (side_ != nullptr) return side_;
  RLK_RETURN_IF_ERROR(missed_);
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {Reason::kPlacementUnavailable, "address", options_.address,
                    "unix:PATH with the side socket PATH.side, and a session of the client's own"},
                   "arenas are for clients that hold their session on the server's side socket");
}

absl::StatusOr<rlk::v1::OpenSessionResponse> SessionHolder::OpenByCall() {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
  Attach(context);
  rlk::v1::OpenSessionRequest request;
  request.set_lease_ms(options_.lease.count());
  rlk::v1::OpenSessionResponse response;
  RLK_RETURN_IF_ERROR(FromGrpc(stub_->OpenSession(&context, request, &response)));
  return response;
}

// A call that fails is tried again at the next turn: the lease has room for two.
void SessionHolder::Renew(std::chrono::milliseconds interval) {
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, interval, [this] { return stopping_; })) {
    lock.unlock();
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + interval);
    Attach(context);
    rlk::v1::RenewSessionResponse response;
    (void)stub_->RenewSession(&context, {}, &response);
    lock.lock();
  }
}

}  // namespace rlk::client
