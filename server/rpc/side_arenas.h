// Requests of the side socket about arenas.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "rlk/v1/session.pb.h"
#include "server/engine/owned_fd.h"
#include "server/sessions/session.h"
#include "server/tensors/arena_store.h"

namespace rlk::server {

// Whether the request is about an arena, and whether answering it may take long.
bool IsArenaRequest(const rlk::v1::SideRequest& request);
bool TakesLong(const rlk::v1::SideRequest& request);

// The reply, and in `descriptor` what goes with it.
absl::StatusOr<rlk::v1::SideReply> AnswerArena(const rlk::v1::SideRequest& request,
                                               const std::shared_ptr<Session>& session,
                                               ArenaStore& arenas,
                                               std::shared_ptr<const ArenaPeer> peer,
                                               OwnedFd* descriptor);

}  // namespace rlk::server
