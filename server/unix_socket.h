// Ownership of the path of a Unix socket. gRPC replaces whatever lies at a path, so without this a
// second server would silently take the path of a live one.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace rlk::server {

// Holds an exclusive lock on PATH.lock for as long as it lives; removes socket and lock file when
// it goes. The kernel drops the lock of a process that died.
class UnixSocketPath {
 public:
  // What the kernel takes.
  static constexpr size_t kPathBytesMax = 107;

  // Errors name `flag`: a path that is too long, a live server at it, something there that is not
  // a socket, a directory that cannot be written. A dead server's socket is removed.
  static absl::StatusOr<UnixSocketPath> Acquire(const std::string& path,
                                                const char* flag = "--unix");

  UnixSocketPath(UnixSocketPath&& other) noexcept;
  UnixSocketPath& operator=(UnixSocketPath&&) = delete;
  ~UnixSocketPath();

  const std::string& path() const { return path_; }

 private:
  UnixSocketPath(std::string path, int lock_fd) : path_(std::move(path)), lock_fd_(lock_fd) {}

  std::string path_;
  int lock_fd_;
};

}  // namespace rlk::server
