#include "server/rpc/side_socket.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/core/status.h"
#include "proto/wire/codec.h"
#include "server/rpc/status_map.h"

namespace rlk::server {
namespace {

constexpr size_t kPacketBytesMax = 4096;
constexpr int kBacklog = 64;

std::string ErrorReply(const absl::Status& status) {
  rlk::v1::SideReply reply;
  reply.set_error(ToGrpcStatus(status).error_details());
  return reply.SerializeAsString();
}

absl::StatusOr<rlk::v1::SideRequest> Parse(std::string_view packet) {
  wire::InputBytes bytes;
  bytes.pieces.emplace_back(reinterpret_cast<const std::byte*>(packet.data()), packet.size());
  RLK_ASSIGN_OR_RETURN(wire::SplitMessage split,
                       wire::Split(rlk::v1::SideRequest::descriptor(), bytes, 0));
  return std::move(static_cast<rlk::v1::SideRequest&>(*split.message));
}

absl::Status CannotListen(const std::string& path) {
  return InvalidArgument(Reason::kUnknownOption, "--side", path, "a path that can be listened at",
                         "cannot listen: " + std::string(strerror(errno)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SideSocket>> SideSocket::Listen(const std::string& path,
                                                               const SessionServiceContext& context,
                                                               const Logger* logger) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, path.c_str(), std::min(path.size() + 1, sizeof(address.sun_path) - 1));
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener < 0) return CannotListen(path);
  // Never open to others, not even between bind and chmod.
  const mode_t old_mask = umask(0177);
  const int bound = bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  umask(old_mask);
  if (bound != 0 || listen(listener, kBacklog) != 0) {
    const absl::Status status = CannotListen(path);
    close(listener);
    return status;
  }
  const int wake = eventfd(0, EFD_CLOEXEC);
  if (wake < 0) {
    const absl::Status status = CannotListen(path);
    close(listener);
    return status;
  }
  return std::unique_ptr<SideSocket>(new SideSocket(listener, wake, context, logger));
}

SideSocket::SideSocket(int listener, int wake, const SessionServiceContext& context,
                       const Logger* logger)
    : listener_(listener), wake_(wake), context_(context), logger_(logger), thread_([this] {
        Serve();
      }) {}

SideSocket::~SideSocket() {
  const uint64_t one = 1;
  (void)!write(wake_, &one, sizeof(one));
  thread_.join();
  while (!connections_.empty()) Drop(connections_.begin()->first);
  close(listener_);
  close(wake_);
}

void SideSocket::Serve() {
  for (;;) {
    std::vector<pollfd> waiting = {{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const auto& [descriptor, connection] : connections_) {
      waiting.push_back({descriptor, POLLIN, 0});
    }
    if (poll(waiting.data(), waiting.size(), -1) < 0) continue;
    if (waiting[0].revents != 0) return;
    if (waiting[1].revents != 0) Accept();
    for (size_t i = 2; i < waiting.size(); ++i) {
      if (waiting[i].revents == 0) continue;
      const int descriptor = waiting[i].fd;
      if (!Receive(descriptor, connections_.at(descriptor))) Drop(descriptor);
    }
  }
}

void SideSocket::Accept() {
  const int descriptor =
      static_cast<int>(accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (descriptor < 0) {
    // Without descriptors the connection goes on waiting, and so do we, a little.
    constexpr int kPauseMs = 10;
    (void)poll(nullptr, 0, kPauseMs);
    return;
  }
  ucred peer = {};
  socklen_t size = sizeof(peer);
  const bool known = getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  const bool room = static_cast<int64_t>(connections_.size()) < context_.limits.sessions_max;
  if (known && peer.uid == geteuid() && room) {
    connections_[descriptor].uid = peer.uid;
    return;
  }
  const absl::Status refused =
      room ? MakeError(absl::StatusCode::kPermissionDenied,
                       {Reason::kPermissionDenied, "uid", std::to_string(peer.uid),
                        std::to_string(geteuid())},
                       "the side socket serves the server's own user")
           : MakeError(absl::StatusCode::kResourceExhausted,
                       {Reason::kSessionsExhausted, {}, {}, {}, 1000},
                       "too many connections are open");
  const std::string reply = ErrorReply(refused);
  (void)!send(descriptor, reply.data(), reply.size(), MSG_NOSIGNAL);
  logger_->Warning("side socket refused", {{"uid", static_cast<int64_t>(peer.uid)}});
  close(descriptor);
}

bool SideSocket::Receive(int descriptor, Connection& connection) {
  char packet[kPacketBytesMax];
  // recv takes no descriptors along: the kernel closes what a peer sends.
  const ssize_t got = recv(descriptor, packet, sizeof(packet), MSG_TRUNC);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  const std::string reply =
      static_cast<size_t>(got) > sizeof(packet)
          ? ErrorReply(InvalidArgument(
                Reason::kMessageTooLarge, "packet", std::to_string(got) + " bytes",
                std::to_string(kPacketBytesMax) + " bytes", "the packet is too large"))
          : Answer({packet, static_cast<size_t>(got)}, connection);
  // A peer that does not read its answers is given up.
  return send(descriptor, reply.data(), reply.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(reply.size());
}

std::string SideSocket::Answer(std::string_view packet, Connection& connection) {
  const auto request = Parse(packet);
  if (!request.ok()) return ErrorReply(request.status());
  if (!request->has_open_session() || connection.session != nullptr) {
    return ErrorReply(InvalidArgument(Reason::kMalformedMessage, "request", {},
                                      "open_session, once", "the packet asks for nothing new"));
  }
  auto session = context_.sessions->OpenHeld(connection.uid);
  if (!session.ok()) return ErrorReply(session.status());
  connection.session = *std::move(session);
  rlk::v1::SideReply reply;
  *reply.mutable_open_session() = DescribeSession(context_, *connection.session);
  return reply.SerializeAsString();
}

void SideSocket::Drop(int descriptor) {
  const auto found = connections_.find(descriptor);
  if (found->second.session != nullptr) context_.sessions->End(found->second.session);
  connections_.erase(found);
  close(descriptor);
}

}  // namespace rlk::server
