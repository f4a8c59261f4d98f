// The side socket: a Unix socket (SOCK_SEQPACKET) for clients on this host, beside gRPC. A
// connection opens one session, which ends when the connection does: a client that was killed frees
// what it owned at once. The peer's uid, as the kernel tells it, must be the server's own, or one
// that the server was told to let in.
//
// Packets are SideRequest and SideReply. With the reply to open_arena goes the descriptor of the
// arena's memory. The server never takes a descriptor.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "rlk/v1/session.pb.h"
#include "server/log/line_bound.h"
#include "server/log/log.h"
#include "server/rpc/session_service.h"
#include "server/rpc/side_process.h"
#include "server/rpc/side_worker.h"
#include "server/sessions/session_table.h"

namespace rlk::server {

class SideSocket {
 public:
  // Listens at `path`, which the caller owns (UnixSocketPath), with mode 0600; where `uids` names
  // further users, anybody may connect and the kernel's word on the peer decides. `context`
  // outlives the object. INVALID_ARGUMENT (naming --side) where it cannot listen.
  static absl::StatusOr<std::unique_ptr<SideSocket>> Listen(const std::string& path,
                                                            std::vector<uint32_t> uids,
                                                            const SessionServiceContext& context,
                                                            const Logger* logger);
  // Ends the sessions of the connections that are open.
  ~SideSocket();

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection {
    std::shared_ptr<Session> session;
    Clock::time_point opened;
    std::shared_ptr<const SideProcess> process;
    // The worker answers its packet; nothing is read meanwhile.
    bool busy = false;
  };
  struct Finished {
    int descriptor = -1;
    bool over = false;
  };

  SideSocket(int listener, int wake, std::string path, std::vector<uint32_t> uids,
             const SessionServiceContext& context, const Logger* logger);
  void Serve();
  void Accept();
  bool Admits(uint32_t uid) const;
  bool HasRoom(uint32_t uid) const;
  void Refuse(int descriptor, uint32_t uid, bool admitted);
  void EndIdle();
  // False when the connection is over.
  bool Receive(int descriptor, Connection& connection);
  std::string Answer(const rlk::v1::SideRequest& request, Connection& connection);
  void AnswerLater(int descriptor, rlk::v1::SideRequest request, Connection& connection);
  absl::Status CheckMode() const;
  void TakeFinished();
  void Drop(int descriptor);

  const int listener_;
  const int wake_;
  const std::string path_;
  const std::vector<uint32_t> uids_;
  const SessionServiceContext& context_;
  const Logger* const logger_;
  // Of the thread alone, and so are the two that follow.
  std::unordered_map<int, Connection> connections_;
  SideProcesses processes_;
  LineBound foreign_, full_;
  std::mutex mutex_;
  bool stopping_ = false;           // guarded by mutex_
  std::vector<Finished> finished_;  // guarded by mutex_
  SideWorker worker_;
  std::thread thread_;
};

}  // namespace rlk::server
