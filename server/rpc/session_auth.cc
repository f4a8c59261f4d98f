#include "server/rpc/session_auth.h"

#include <string>
#include <string_view>

#include "kernels/core/status.h"

namespace rlk::server {
namespace {

absl::Status Unauthenticated(std::string_view message) {
  return MakeError(
      absl::StatusCode::kUnauthenticated,
      {Reason::kUnauthenticated, kSessionKey, {}, "one token, from SessionService.OpenSession"},
      message);
}

}  // namespace

absl::StatusOr<std::shared_ptr<Session>> SessionOf(const IncomingCall& call,
                                                   SessionTable& sessions) {
  const auto& metadata = call.context->client_metadata();
  const auto found = metadata.find(kSessionKey);
  if (found == metadata.end()) return std::shared_ptr<Session>();
  if (metadata.count(kSessionKey) > 1) return Unauthenticated("the call carries several tokens");
  return sessions.Find(std::string_view(found->second.data(), found->second.size()),
                       call.account.get());
}

absl::StatusOr<std::shared_ptr<Session>> RequireSession(const IncomingCall& call,
                                                        SessionTable& sessions) {
  absl::StatusOr<std::shared_ptr<Session>> session = SessionOf(call, sessions);
  if (session.ok() && *session == nullptr) return Unauthenticated("the call needs a session");
  return session;
}

absl::StatusOr<std::shared_ptr<Session>> EnterSession(const IncomingCall& call,
                                                      SessionTable& sessions, int64_t calls_max) {
  absl::StatusOr<std::shared_ptr<Session>> session = SessionOf(call, sessions);
  if (!session.ok() || *session == nullptr || (*session)->EnterCall(calls_max)) return session;
  constexpr int64_t kRetryMs = 10;
  return MakeError(
      absl::StatusCode::kResourceExhausted,
      {Reason::kQueueFull, "session_calls_max", std::to_string(calls_max + 1) + " calls",
       "at most " + std::to_string(calls_max) + " (session_calls_max)", kRetryMs},
      "the session has too many calls in flight");
}

}  // namespace rlk::server
