#include "server/unix_socket.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "kernels/core/status.h"

namespace rlk::server {
namespace {

static_assert(UnixSocketPath::kPathBytesMax == sizeof(sockaddr_un{}.sun_path) - 1);

absl::Status PathError(const char* flag, const std::string& path, std::string_view allowed,
                       const std::string& message) {
  return InvalidArgument(Reason::kUnknownOption, flag, path, allowed, message);
}

// The lock file may be removed between our open and our lock; then we hold a file that nobody else
// will find, and try again.
absl::StatusOr<int> LockFile(const char* flag, const std::string& path) {
  const std::string lock_path = path + ".lock";
  while (true) {
    const int fd = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
      return PathError(flag, path, "a path in a directory that can be written",
                       "cannot open the lock file: " + std::string(strerror(errno)));
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      close(fd);
      return PathError(flag, path, "a path that no other server uses", "a server owns this path");
    }
    struct stat held, found;
    if (fstat(fd, &held) == 0 && stat(lock_path.c_str(), &found) == 0 &&
        held.st_ino == found.st_ino && held.st_dev == found.st_dev) {
      return fd;
    }
    close(fd);
  }
}

// Something may listen that knows nothing of the lock.
bool SomebodyListens(const std::string& path, int type) {
  const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const bool connected =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return connected;
}

absl::Status RemoveStaleSocket(const char* flag, const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return absl::OkStatus();
  if (!S_ISSOCK(info.st_mode)) {
    return PathError(flag, path, "a free path, or a socket that nobody uses",
                     "what lies at the path is not a socket");
  }
  if (SomebodyListens(path, SOCK_STREAM) || SomebodyListens(path, SOCK_SEQPACKET)) {
    return PathError(flag, path, "a path that no other server uses",
                     "a process listens at this path");
  }
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return PathError(flag, path, "a path that can be written",
                     "cannot remove a dead server's socket: " + std::string(strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<UnixSocketPath> UnixSocketPath::Acquire(const std::string& path, const char* flag) {
  if (path.size() > kPathBytesMax) {
    return PathError(flag, path, "a path of at most " + std::to_string(kPathBytesMax) + " bytes",
                     "the path is too long for a socket");
  }
  RLK_ASSIGN_OR_RETURN(const int lock_fd, LockFile(flag, path));
  UnixSocketPath owner(path, lock_fd);
  if (absl::Status status = RemoveStaleSocket(flag, path); !status.ok()) {
    // What lies there is not ours to remove.
    unlink((path + ".lock").c_str());
    close(std::exchange(owner.lock_fd_, -1));
    return status;
  }
  return owner;
}

UnixSocketPath::UnixSocketPath(UnixSocketPath&& other) noexcept
    : path_(std::move(other.path_)), lock_fd_(std::exchange(other.lock_fd_, -1)) {}

UnixSocketPath::~UnixSocketPath() {
  if (lock_fd_ < 0) return;
  unlink(path_.c_str());
  unlink((path_ + ".lock").c_str());
  close(lock_fd_);
}

}  // namespace rlk::server
