#include "client/cpp/side_connection.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

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

}  // namespace

std::shared_ptr<SideConnection> SideConnection::Connect(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) return nullptr;
  memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return nullptr;
  timeval timeout = {};
  timeout.tv_sec = kSeconds;
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    return std::shared_ptr<SideConnection>(new SideConnection(fd));
  }
  close(fd);
  return nullptr;
}

SideConnection::~SideConnection() { Close(); }

void SideConnection::Close() {
  const std::lock_guard lock(mutex_);
  if (const int fd = std::exchange(socket_, -1); fd >= 0) close(fd);
}

absl::StatusOr<rlk::v1::SideReply> SideConnection::Ask(const rlk::v1::SideRequest& request,
                                                       int* descriptor) {
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
    const bool sent = send(socket_, packet.data(), packet.size(), MSG_NOSIGNAL) ==
                      static_cast<ssize_t>(packet.size());
    const ssize_t got = sent ? recvmsg(socket_, &message, MSG_CMSG_CLOEXEC) : -1;
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
