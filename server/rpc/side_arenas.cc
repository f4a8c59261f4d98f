#include "server/rpc/side_arenas.h"

#include <string>
#include <utility>

#include "kernels/core/status.h"

namespace rlk::server {
namespace {

using rlk::v1::SideReply;
using rlk::v1::SideRequest;

absl::StatusOr<ArenaKind> KindOf(rlk::v1::ArenaKind kind) {
  switch (kind) {
    case rlk::v1::ARENA_KIND_HOST_INPUT:
      return ArenaKind::kHostInput;
    case rlk::v1::ARENA_KIND_HOST_OUTPUT:
      return ArenaKind::kHostOutput;
    case rlk::v1::ARENA_KIND_DEVICE:
      return ArenaKind::kDevice;
    default:
      return InvalidArgument(Reason::kUnknownEnumValue, "kind", std::to_string(kind),
                             "ARENA_KIND_HOST_INPUT, ARENA_KIND_HOST_OUTPUT, ARENA_KIND_DEVICE",
                             "no arena is of this kind");
  }
}

absl::Status Open(const rlk::v1::OpenArenaRequest& request, const std::shared_ptr<Session>& session,
                  ArenaStore& arenas, std::shared_ptr<const ArenaPeer> peer, OwnedFd* descriptor,
                  rlk::v1::OpenArenaResponse& response) {
  RLK_ASSIGN_OR_RETURN(const ArenaKind kind, KindOf(request.kind()));
  RLK_ASSIGN_OR_RETURN(OpenedArena opened, arenas.Open(session, kind, request.bytes(),
                                                       request.device_uuid(), std::move(peer)));
  response.set_arena(opened.id);
  response.set_bytes(opened.bytes);
  response.set_device_uuid(opened.device_uuid);
  *descriptor = std::move(opened.descriptor);
  return absl::OkStatus();
}

}  // namespace

bool IsArenaRequest(const SideRequest& request) {
  return request.request_case() != SideRequest::kOpenSession &&
         request.request_case() != SideRequest::REQUEST_NOT_SET;
}

bool TakesLong(const SideRequest& request) {
  return request.has_open_arena() || request.has_close_arena();
}

absl::StatusOr<SideReply> AnswerArena(const SideRequest& request,
                                      const std::shared_ptr<Session>& session, ArenaStore& arenas,
                                      std::shared_ptr<const ArenaPeer> peer, OwnedFd* descriptor) {
  SideReply reply;
  switch (request.request_case()) {
    case SideRequest::kOpenArena:
      RLK_RETURN_IF_ERROR(Open(request.open_arena(), session, arenas, std::move(peer), descriptor,
                               *reply.mutable_open_arena()));
      return reply;
    case SideRequest::kCloseArena:
      RLK_RETURN_IF_ERROR(arenas.Close(*session, request.close_arena().arena()));
      reply.mutable_close_arena();
      return reply;
    case SideRequest::kTakeSlot: {
      const auto& take = request.take_slot();
      RLK_ASSIGN_OR_RETURN(const SlotPlace slot,
                           arenas.TakeSlot(*session, take.arena(), take.bytes()));
      auto& response = *reply.mutable_take_slot();
      response.set_generation(slot.generation);
      response.set_offset(slot.offset);
      response.set_bytes(slot.bytes);
      return reply;
    }
    case SideRequest::kFreeSlot:
      RLK_RETURN_IF_ERROR(
          arenas.FreeSlot(*session, request.free_slot().arena(), request.free_slot().generation()));
      reply.mutable_free_slot();
      return reply;
    default:
      return InvalidArgument(Reason::kMalformedMessage, "request", {},
                             "open_arena, close_arena, take_slot, free_slot",
                             "the packet asks for nothing of an arena");
  }
}

}  // namespace rlk::server
