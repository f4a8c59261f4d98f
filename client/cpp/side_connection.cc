#include "client/cpp/side_connection.h"

#include <poll.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "client/cpp/status_map.h"
#include "google/rpc/status.pb.h"
#include "kernels/core/status.h"

namespace rlk::client {
namespace {

constexpr size_t kPacketBytesMax = 8192;
// Large arenas are zeroed and page-locked before the answer.
constexpr int kSeconds = 60;

absl::Status ServerError(const std::string& bytes) {
  google::rpc::Status status;
  if (!status.ParseFromString(bytes)) return absl::InternalError("the side socket's error is none");
  return FromGrpc({static_cast<grpc::StatusCode>(status.code()), status.message(), bytes});
}

// The first descriptor of the message; any other is closed.
int TakeDescriptor(msghdr& message) {
  int first = -1;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      if (first < 0) {
        first = descriptor;
      } else {
        close(descriptor);
      }
    }
  }
  return first;
}

absl::Status Unreachable(const std::string& path, int error) {
  const std::string message = "the side socket " + path + ": " + strerror(error);
  // The server has none, or has gone and left none.
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(message);
  return absl::UnavailableError(message);
}

absl::Status Forked() {
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {Reason::kPlacementUnavailable,
                    "arena",
                    {},
                    "arenas of clients that were made after the fork"},
                   "this process is a fork of the one that shares memory with the server");
}

// Repeats `call`, which does not block, until it has a result or the deadline passes.
template <typename Call>
ssize_t UntilReady(int fd, short events, std::chrono::steady_clock::time_point deadline,
                   const Call& call) {
  for (;;) {
    const ssize_t result = call();
    if (result >= 0 || (errno != EINTR && errno != EAGAIN)) return result;
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return -1;
    pollfd waited = {fd, events, 0};
    // Interrupted or not, the call says what there is.
    (void)poll(&waited, 1, static_cast<int>(left.count()));
  }
}

}  // namespace

SideConnection::SideConnection(int socket) : process_(getpid()), socket_(socket) {}

absl::StatusOr<std::shared_ptr<SideConnection>> SideConnection::Connect(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) return Unreachable(path, ENOENT);
  memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return Unreachable(path, errno);
  // Of the wait for a place in the server's queue.
  timeval timeout = {};
  timeout.tv_sec = kSeconds;
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  int connected = -1;
  do {
    connected = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  } while (connected != 0 && errno == EINTR);
  if (connected == 0) return std::shared_ptr<SideConnection>(new SideConnection(fd));
  const int error = errno;
  close(fd);
  return Unreachable(path, error);
}

SideConnection::~SideConnection() { Close(); }

void SideConnection::Close() {
  if (getpid() != process_) {
    // A thread that is not here may have held the mutex.
    if (const int fd = std::exchange(socket_, -1); fd >= 0) close(fd);
    return;
  }
  const std::lock_guard lock(mutex_);
  if (const int fd = std::exchange(socket_, -1); fd >= 0) close(fd);
}

ssize_t SideConnection::Exchange(const std::string& packet, msghdr& message) const {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(kSeconds);
  const ssize_t sent = UntilReady(socket_, POLLOUT, deadline, [&] {
    return send(socket_, packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  });
  // A server that refuses a connection says why and closes it, maybe before it is asked.
  if (sent < 0 && errno != EPIPE && errno != ECONNRESET) return -1;
  const auto receive = [&] { return recvmsg(socket_, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT); };
  const ssize_t got = UntilReady(socket_, POLLIN, deadline, receive);
  // The reset stands before the packet.
  return got < 0 && errno == ECONNRESET ? receive() : got;
}

absl::StatusOr<rlk::v1::SideReply> SideConnection::Ask(const rlk::v1::SideRequest& request,
                                                       int* descriptor) {
  if (getpid() != process_) return Forked();
  const std::string packet = request.SerializeAsString();
  char buffer[kPacketBytesMax];
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  iovec bytes = {buffer, sizeof(buffer)};
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  int received = -1;
  rlk::v1::SideReply reply;
  {
    const std::lock_guard lock(mutex_);
    if (socket_ < 0) return absl::UnavailableError("the connection to the side socket is closed");
    const ssize_t got = Exchange(packet, message);
    if (got > 0) received = TakeDescriptor(message);
    if (got <= 0 || !reply.ParseFromArray(buffer, static_cast<int>(got))) {
      // A later answer would be taken for that of another question.
      close(std::exchange(socket_, -1));
      if (received >= 0) close(received);
      return absl::UnavailableError("the side socket does not answer");
    }
  }
  if (descriptor != nullptr) {
    *descriptor = std::exchange(received, -1);
  } else if (received >= 0) {
    close(received);
  }
  if (reply.reply_case() == rlk::v1::SideReply::kError) return ServerError(reply.error());
  return reply;
}

}  // namespace rlk::client
