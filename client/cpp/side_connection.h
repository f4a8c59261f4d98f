// A connection to the side socket of a server on this host: packets and their answers. Internal.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "rlk/v1/session.pb.h"

namespace rlk::client {

// Thread-safe: one question at a time. Of the process that made it: a fork asks nothing, for each
// of the two would read answers to the other.
class SideConnection {
 public:
  // NOT_FOUND where there is no such socket; UNAVAILABLE where there is one and it cannot be
  // reached now.
  static absl::StatusOr<std::shared_ptr<SideConnection>> Connect(const std::string& path);
  ~SideConnection();
  SideConnection(const SideConnection&) = delete;
  SideConnection& operator=(const SideConnection&) = delete;

  // The answer, and the descriptor that came with it (-1 for none; the caller closes it). Errors
  // are the server's own, or UNAVAILABLE where it does not answer: the connection is of no use
  // after that. FAILED_PRECONDITION (kPlacementUnavailable) in a fork. Signals do not end it.
  absl::StatusOr<rlk::v1::SideReply> Ask(const rlk::v1::SideRequest& request,
                                         int* descriptor = nullptr);
  // Ends the session that it holds; not in a fork, which only lets go of its end. Idempotent.
  void Close();

 private:
  explicit SideConnection(int socket);
  // The packet's size; 0 or less where there is none.
  ssize_t Exchange(const std::string& packet, msghdr& message) const;

  const pid_t process_;
  std::mutex mutex_;
  int socket_;  // guarded by mutex_; -1 once it is closed
};

}  // namespace rlk::client
