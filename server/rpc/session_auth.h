// Who is calling, by what the call's metadata says.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "server/rpc/incoming_call.h"
#include "server/sessions/session_table.h"

namespace rlk::server {

inline constexpr char kSessionKey[] = "rlk-session";

// The session whose token the call carries, with its lease touched; null where it carries none.
// UNAUTHENTICATED (kUnauthenticated) for a token that is no session's, or one of another account,
// or several tokens.
absl::StatusOr<std::shared_ptr<Session>> SessionOf(const IncomingCall& call,
                                                   SessionTable& sessions);
// The same, where there must be one.
absl::StatusOr<std::shared_ptr<Session>> RequireSession(const IncomingCall& call,
                                                        SessionTable& sessions);

// The session, with one more call in flight (the caller calls LeaveCall); null where there is none.
// RESOURCE_EXHAUSTED (kQueueFull) where it has `calls_max` already.
absl::StatusOr<std::shared_ptr<Session>> EnterSession(const IncomingCall& call,
                                                      SessionTable& sessions, int64_t calls_max);

}  // namespace rlk::server
