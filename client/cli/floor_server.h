// The floors of `rlk bench`: a gRPC server of its own process whose one method takes and gives an
// empty message, and the other takes a message of bytes and parses it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace rlk::cli {

// `rlk __floor-server ADDRESS`: not for users. Serves until its stdin ends.
inline constexpr char kFloorServerCommand[] = "__floor-server";
int RunFloorServer(const std::vector<std::string>& words);

// A running floor server; it ends with this object.
class FloorServer {
 public:
  // On a Unix socket in a new directory, or on a free port of 127.0.0.1. Starts a process: call it
  // with any number of threads running.
  static absl::StatusOr<FloorServer> Start(bool unix_socket);
  FloorServer(FloorServer&& other) noexcept;
  FloorServer& operator=(FloorServer&&) = delete;
  ~FloorServer();

  const std::string& address() const { return address_; }

 private:
  FloorServer() = default;

  pid_t process_ = -1;
  int stdin_ = -1;
  std::string directory_;
  std::string address_;
};

}  // namespace rlk::cli
