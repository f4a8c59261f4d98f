#include "tests/integration/side_peer.h"

#include <dirent.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "tests/integration/fixture.h"

namespace rlk::test {
namespace {

int Connect(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
  close(fd);
  return -1;
}

// The bytes of one packet and the descriptor that came with it. No allocation: it is called between
// fork and exit.
ssize_t Receive(int socket, char* to, size_t size, int* descriptor) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  iovec bytes = {to, size};
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  *descriptor = -1;
  const cmsghdr* const header = got >= 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    memcpy(descriptor, CMSG_DATA(header), sizeof(int));
  }
  return got;
}

std::string SessionPacket() {
  rlk::v1::SideRequest request;
  request.mutable_open_session();
  return request.SerializeAsString();
}

std::string ArenaPacket(rlk::v1::ArenaKind kind, int64_t bytes) {
  rlk::v1::SideRequest request;
  request.mutable_open_arena()->set_kind(kind);
  request.mutable_open_arena()->set_bytes(bytes);
  return request.SerializeAsString();
}

}  // namespace

SidePeer::SidePeer(const std::string& path) : socket_(Connect(path)) { EXPECT_GE(socket_, 0); }
SidePeer::~SidePeer() { close(socket_); }

rlk::v1::SideReply SidePeer::AskWith(const rlk::v1::SideRequest& request, int descriptor) {
  std::string packet = request.SerializeAsString();
  iovec bytes = {packet.data(), packet.size()};
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
    memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  }
  EXPECT_EQ(sendmsg(socket_, &message, 0), static_cast<ssize_t>(packet.size()));
  char buffer[8192];
  int received = -1;
  const ssize_t got = Receive(socket_, buffer, sizeof(buffer), &received);
  if (received >= 0) close(received);
  rlk::v1::SideReply reply;
  EXPECT_TRUE(reply.ParseFromArray(buffer, static_cast<int>(got)));
  return reply;
}

rlk::v1::SideReply SidePeer::OpenSession() {
  rlk::v1::SideRequest request;
  request.mutable_open_session();
  return Ask(request);
}

std::pair<std::string, int> SidePeer::OpenArena(rlk::v1::ArenaKind kind, int64_t bytes) {
  const std::string packet = ArenaPacket(kind, bytes);
  EXPECT_EQ(send(socket_, packet.data(), packet.size(), 0), static_cast<ssize_t>(packet.size()));
  char buffer[8192];
  int descriptor = -1;
  const ssize_t got = Receive(socket_, buffer, sizeof(buffer), &descriptor);
  rlk::v1::SideReply reply;
  EXPECT_TRUE(reply.ParseFromArray(buffer, static_cast<int>(got)));
  return {reply.open_arena().arena(), descriptor};
}

rlk::v1::SideReply SidePeer::AwaitEnd() {
  char buffer[8192];
  rlk::v1::SideReply first;
  const ssize_t got = recv(socket_, buffer, sizeof(buffer), 0);
  if (got <= 0) return first;
  EXPECT_TRUE(first.ParseFromArray(buffer, static_cast<int>(got)));
  while (recv(socket_, buffer, sizeof(buffer), 0) > 0) continue;
  return first;
}

SideResult AskAs(uint32_t uid, const std::string& path) {
  int out[2];
  EXPECT_EQ(pipe(out), 0);
  const std::string packets[] = {SessionPacket(),
                                 ArenaPacket(rlk::v1::ARENA_KIND_HOST_INPUT, 4096)};
  const pid_t child = fork();
  if (child == 0) {
    // Lengths and packets, as they come.
    const int socket = setuid(uid) == 0 ? Connect(path) : -1;
    for (const std::string& packet : packets) {
      char buffer[8192];
      int descriptor = -1;
      ssize_t got = -1;
      if (socket >= 0) {
        (void)!send(socket, packet.data(), packet.size(), MSG_NOSIGNAL);
        got = Receive(socket, buffer, sizeof(buffer), &descriptor);
      }
      (void)!write(out[1], &got, sizeof(got));
      (void)!write(out[1], &descriptor, sizeof(descriptor));
      if (got > 0) (void)!write(out[1], buffer, static_cast<size_t>(got));
    }
    _exit(0);
  }
  close(out[1]);
  SideResult result;
  for (size_t i = 0; i < std::size(packets); ++i) {
    ssize_t size = -1;
    int descriptor = -1;
    char buffer[8192];
    if (read(out[0], &size, sizeof(size)) != sizeof(size)) break;
    if (read(out[0], &descriptor, sizeof(descriptor)) != sizeof(descriptor) || size <= 0) continue;
    EXPECT_EQ(read(out[0], buffer, static_cast<size_t>(size)), size);
    rlk::v1::SideReply reply;
    EXPECT_TRUE(reply.ParseFromArray(buffer, static_cast<int>(size)));
    result.connected = true;
    result.descriptor = result.descriptor || descriptor >= 0;
    if (reply.error().empty() || !result.reason.empty()) continue;
    result.reason = FactsOf(grpc::Status(grpc::StatusCode::UNKNOWN, "", reply.error())).reason;
  }
  close(out[0]);
  int ended = 0;
  EXPECT_EQ(waitpid(child, &ended, 0), child);
  return result;
}

pid_t HoldArena(const std::string& path, rlk::v1::ArenaKind kind, int64_t bytes) {
  int out[2];
  EXPECT_EQ(pipe(out), 0);
  const std::string packets[] = {SessionPacket(), ArenaPacket(kind, bytes)};
  const pid_t child = fork();
  if (child == 0) {
    const int socket = Connect(path);
    int descriptor = -1;
    for (const std::string& packet : packets) {
      char buffer[8192];
      if (send(socket, packet.data(), packet.size(), MSG_NOSIGNAL) < 0) _exit(1);
      if (Receive(socket, buffer, sizeof(buffer), &descriptor) <= 0) _exit(1);
    }
    if (descriptor < 0) _exit(1);
    (void)!write(out[1], "y", 1);
    for (;;) pause();
  }
  close(out[1]);
  char ready = 0;
  const bool holds = read(out[0], &ready, 1) == 1;
  close(out[0]);
  return holds ? child : -1;
}

int OpenDescriptors(pid_t pid) {
  const std::string path = "/proc/" + (pid == 0 ? "self" : std::to_string(pid)) + "/fd";
  DIR* const folder = opendir(path.c_str());
  EXPECT_NE(folder, nullptr);
  int count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

int OpenPidfds() {
  DIR* const folder = opendir("/proc/self/fd");
  EXPECT_NE(folder, nullptr);
  int count = 0;
  while (const dirent* const entry = readdir(folder)) {
    char target[256];
    const ssize_t size = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target));
    const std::string_view name(target, static_cast<size_t>(std::max<ssize_t>(size, 0)));
    if (name == "anon_inode:[pidfd]" || name.starts_with("pidfd:")) ++count;
  }
  closedir(folder);
  return count;
}

}  // namespace rlk::test
