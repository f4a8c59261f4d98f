// A connection to the side socket of a server on this host: packets and their answers. Internal.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "rlk/v1/session.pb.h"

namespace rlk::client {

// Thread-safe: one question at a time.
class SideConnection {
 public:
  // Null where nobody listens at `path`.
  static std::shared_ptr<SideConnection> Connect(const std::string& path);
  ~SideConnection();
  SideConnection(const SideConnection&) = delete;
  SideConnection& operator=(const SideConnection&) = delete;

  // The answer, and the descriptor that came with it (-1 for none; the caller closes it). Errors
  // are the server's own, or UNAVAILABLE where it does not answer: the connection is of no use
  // after that.
  absl::StatusOr<rlk::v1::SideReply> Ask(const rlk::v1::SideRequest& request,
                                         int* descriptor = nullptr);
  // Ends the session that it holds. Idempotent.
  void Close();

 private:
  explicit SideConnection(int socket) : socket_(socket) {}

  std::mutex mutex_;
  int socket_;  // guarded by mutex_; -1 once it is closed
};

}  // namespace rlk::client
