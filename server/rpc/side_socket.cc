#include "server/rpc/side_socket.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/core/status.h"
#include "proto/wire/codec.h"
#include "server/rpc/side_arenas.h"
#include "server/rpc/status_map.h"

namespace rlk::server {
namespace {

constexpr size_t kPacketBytesMax = 4096;
constexpr int kBacklog = 64;
// A connection holds room for a session, which it has to open within this time.
constexpr std::chrono::seconds kOpenWithin{5};
// How often connections without a session are looked for.
constexpr int kIdleCheckMs = 1000;

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

absl::Status SessionEnded() {
  return MakeError(absl::StatusCode::kUnauthenticated,
                   {Reason::kUnauthenticated, "request", {}, "a session that has not ended"},
                   "the session has ended");
}

// False where the peer does not read its answers: it is given up.
bool Send(int socket, const std::string& packet, int descriptor) {
  iovec bytes = {const_cast<char*>(packet.data()), packet.size()};
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &descriptor, sizeof(descriptor));
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(packet.size());
}

}  // namespace

absl::StatusOr<std::unique_ptr<SideSocket>> SideSocket::Listen(const std::string& path,
                                                               std::vector<uint32_t> uids,
                                                               const SessionServiceContext& context,
                                                               const Logger* logger) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, path.c_str(), std::min(path.size() + 1, sizeof(address.sun_path) - 1));
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener < 0) return CannotListen(path);
  // Never open to others, not even between bind and chmod.
  const mode_t old_mask = umask(uids.empty() ? 0177 : 0111);
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
  return std::unique_ptr<SideSocket>(
      new SideSocket(listener, wake, path, std::move(uids), context, logger));
}

SideSocket::SideSocket(int listener, int wake, std::string path, std::vector<uint32_t> uids,
                       const SessionServiceContext& context, const Logger* logger)
    : listener_(listener),
      wake_(wake),
      path_(std::move(path)),
      uids_(std::move(uids)),
      context_(context),
      logger_(logger),
      thread_([this] { Serve(); }) {}

SideSocket::~SideSocket() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  const uint64_t one = 1;
  (void)!write(wake_, &one, sizeof(one));
  thread_.join();
  worker_.Finish();
  for (const auto& [descriptor, connection] : connections_) {
    if (connection.session != nullptr) context_.sessions->End(connection.session);
    close(descriptor);
  }
  close(listener_);
  close(wake_);
}

void SideSocket::Serve() {
  for (;;) {
    std::vector<pollfd> waiting = {{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const auto& [descriptor, connection] : connections_) {
      if (!connection.busy) waiting.push_back({descriptor, POLLIN, 0});
    }
    const int timeout_ms = connections_.empty() ? -1 : kIdleCheckMs;
    if (poll(waiting.data(), waiting.size(), timeout_ms) < 0) continue;
    if (waiting[0].revents != 0) TakeFinished();
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    if (waiting[1].revents != 0) Accept();
    for (size_t i = 2; i < waiting.size(); ++i) {
      if (waiting[i].revents == 0) continue;
      const int descriptor = waiting[i].fd;
      // TakeFinished may have dropped it, and Accept may have got its number again.
      const auto found = connections_.find(descriptor);
      if (found == connections_.end() || found->second.busy) continue;
      if (!Receive(descriptor, found->second)) Drop(descriptor);
    }
    EndIdle();
  }
}

void SideSocket::TakeFinished() {
  uint64_t count = 0;
  (void)!read(wake_, &count, sizeof(count));
  std::vector<Finished> finished;
  {
    const std::lock_guard lock(mutex_);
    finished.swap(finished_);
  }
  for (const Finished& done : finished) {
    connections_.at(done.descriptor).busy = false;
    if (done.over) Drop(done.descriptor);
  }
}

bool SideSocket::Admits(uint32_t uid) const {
  return uid == geteuid() || std::find(uids_.begin(), uids_.end(), uid) != uids_.end();
}

// No user takes the room of another.
bool SideSocket::HasRoom(uint32_t uid) const {
  const int64_t all = context_.limits.sessions_max;
  const auto users = static_cast<int64_t>(uids_.size()) + 1;
  const int64_t own =
      std::count_if(connections_.begin(), connections_.end(),
                    [uid](const auto& entry) { return entry.second.process->uid() == uid; });
  return static_cast<int64_t>(connections_.size()) < all && own < std::max<int64_t>(all / users, 1);
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
  const bool admitted = known && Admits(peer.uid);
  const std::shared_ptr<const SideProcess> process =
      admitted && HasRoom(peer.uid) ? processes_.Find(peer.pid, peer.uid) : nullptr;
  if (process == nullptr) {
    Refuse(descriptor, peer.uid, admitted);
    close(descriptor);
    return;
  }
  Connection& connection = connections_[descriptor];
  connection.opened = Clock::now();
  connection.process = process;
}

void SideSocket::Refuse(int descriptor, uint32_t uid, bool admitted) {
  const absl::Status refused =
      admitted ? MakeError(absl::StatusCode::kResourceExhausted,
                           {Reason::kSessionsExhausted, {}, {}, {}, 1000},
                           "too many connections are open")
               : MakeError(absl::StatusCode::kPermissionDenied,
                           {Reason::kPermissionDenied, "uid", std::to_string(uid),
                            std::to_string(geteuid()) + ", and those of --side-uids"},
                           "the side socket serves the server's own user");
  (void)Send(descriptor, ErrorReply(refused), -1);
  if (const auto lines = (admitted ? full_ : foreign_).Admit(Clock::now())) {
    logger_->Warning("side socket refused", {{"uid", static_cast<int64_t>(uid)},
                                             {"reason", std::string(refused.message())},
                                             {"lines", *lines}});
  }
}

// Those that never opened a session, or whose session was ended by a call.
void SideSocket::EndIdle() {
  const Clock::time_point now = Clock::now();
  std::vector<int> over;
  for (const auto& [descriptor, connection] : connections_) {
    if (connection.busy) continue;
    const bool idle = connection.session == nullptr ? now - connection.opened >= kOpenWithin
                                                    : connection.session->ended();
    if (idle) over.push_back(descriptor);
  }
  for (const int descriptor : over) Drop(descriptor);
}

bool SideSocket::Receive(int descriptor, Connection& connection) {
  char packet[kPacketBytesMax];
  // recv takes no descriptors along: the kernel closes what a peer sends.
  const ssize_t got = recv(descriptor, packet, sizeof(packet), MSG_TRUNC);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  if (static_cast<size_t>(got) > sizeof(packet)) {
    return Send(descriptor,
                ErrorReply(InvalidArgument(
                    Reason::kMessageTooLarge, "packet", std::to_string(got) + " bytes",
                    std::to_string(kPacketBytesMax) + " bytes", "the packet is too large")),
                -1);
  }
  if (connection.session != nullptr && connection.session->ended()) {
    (void)Send(descriptor, ErrorReply(SessionEnded()), -1);
    return false;
  }
  absl::StatusOr<rlk::v1::SideRequest> request = Parse({packet, static_cast<size_t>(got)});
  if (!request.ok()) return Send(descriptor, ErrorReply(request.status()), -1);
  if (connection.session != nullptr && TakesLong(*request)) {
    AnswerLater(descriptor, *std::move(request), connection);
    return true;
  }
  return Send(descriptor, Answer(*request, connection), -1);
}

std::string SideSocket::Answer(const rlk::v1::SideRequest& request, Connection& connection) {
  rlk::v1::SideReply reply;
  if (connection.session != nullptr && IsArenaRequest(request)) {
    absl::StatusOr<rlk::v1::SideReply> answer =
        AnswerArena(request, connection.session, *context_.arenas, {}, nullptr);
    return answer.ok() ? answer->SerializeAsString() : ErrorReply(answer.status());
  }
  if (!request.has_open_session() || connection.session != nullptr) {
    return ErrorReply(InvalidArgument(Reason::kMalformedMessage, "request", {},
                                      "open_session, once and first",
                                      "the packet asks for nothing new"));
  }
  auto session = context_.sessions->OpenHeld(connection.process->uid());
  if (!session.ok()) return ErrorReply(session.status());
  connection.session = *std::move(session);
  *reply.mutable_open_session() = DescribeSession(context_, *connection.session);
  return reply.SerializeAsString();
}

void SideSocket::AnswerLater(int descriptor, rlk::v1::SideRequest request, Connection& connection) {
  connection.busy = true;
  worker_.Post([this, descriptor, request = std::move(request), session = connection.session,
                process = connection.process] {
    OwnedFd memory;
    absl::StatusOr<rlk::v1::SideReply> answer = rlk::v1::SideReply();
    if (const absl::Status mode = CheckMode(); !mode.ok()) {
      answer = mode;
    } else {
      answer = AnswerArena(request, session, *context_.arenas, process, &memory);
    }
    const std::string reply =
        answer.ok() ? answer->SerializeAsString() : ErrorReply(answer.status());
    const bool sent = Send(descriptor, reply, memory.get());
    {
      const std::lock_guard lock(mutex_);
      finished_.push_back({descriptor, !sent});
    }
    const uint64_t one = 1;
    (void)!write(wake_, &one, sizeof(one));
  });
}

// A socket that was opened to others is not the one that arenas were meant for.
absl::Status SideSocket::CheckMode() const {
  struct stat info = {};
  if (!uids_.empty()) return absl::OkStatus();
  if (stat(path_.c_str(), &info) == 0 && (info.st_mode & 0777) == 0600) return absl::OkStatus();
  char mode[8];
  (void)snprintf(mode, sizeof(mode), "%04o", static_cast<unsigned>(info.st_mode & 0777));
  return MakeError(
      absl::StatusCode::kPermissionDenied,
      {Reason::kPermissionDenied, "side", std::string("mode ") + mode, "mode 0600, or --side-uids"},
      "arenas are for the server's own user alone");
}

void SideSocket::Drop(int descriptor) {
  const auto found = connections_.find(descriptor);
  const std::shared_ptr<Session> session = std::move(found->second.session);
  connections_.erase(found);
  close(descriptor);
  if (session == nullptr) return;
  // Whose memory goes: that may take a while.
  worker_.Post([sessions = context_.sessions, session] { sessions->End(session); });
}

}  // namespace rlk::server
