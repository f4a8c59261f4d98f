// The side socket: a Unix socket (SOCK_SEQPACKET) for clients on this host, beside gRPC. A
// connection opens one session, which ends when the connection does: a client that was killed frees
// what it owned at once. The peer's uid, as the kernel tells it, must be the server's own.
//
// Packets are SideRequest and SideReply. The server never takes a descriptor.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "server/log/log.h"
#include "server/rpc/session_service.h"
#include "server/sessions/session_table.h"

namespace rlk::server {

class SideSocket {
 public:
  // Listens at `path`, which the caller owns (UnixSocketPath), with mode 0600. `context` outlives
  // the object. INVALID_ARGUMENT (naming --side) where it cannot listen.
  static absl::StatusOr<std::unique_ptr<SideSocket>> Listen(const std::string& path,
                                                            const SessionServiceContext& context,
                                                            const Logger* logger);
  // Ends the sessions of the connections that are open.
  ~SideSocket();

 private:
  struct Connection {
    std::shared_ptr<Session> session;
    uint32_t uid = 0;
  };

  SideSocket(int listener, int wake, const SessionServiceContext& context, const Logger* logger);
  void Serve();
  void Accept();
  // False when the connection is over.
  bool Receive(int descriptor, Connection& connection);
  std::string Answer(std::string_view packet, Connection& connection);
  void Drop(int descriptor);

  const int listener_;
  const int wake_;
  const SessionServiceContext& context_;
  const Logger* const logger_;
  std::unordered_map<int, Connection> connections_;  // of the thread alone
  std::thread thread_;
};

}  // namespace rlk::server
