// The side socket by its own packets, without the client library: what it lets through, and what a
// process leaves behind.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "rlk/v1/session.pb.h"

namespace rlk::test {

class SidePeer {
 public:
  explicit SidePeer(const std::string& path);
  ~SidePeer();
  SidePeer(const SidePeer&) = delete;
  SidePeer& operator=(const SidePeer&) = delete;

  // The answer; what came with it is closed.
  rlk::v1::SideReply Ask(const rlk::v1::SideRequest& request) { return AskWith(request, -1); }
  // Sends a descriptor along.
  rlk::v1::SideReply AskWith(const rlk::v1::SideRequest& request, int descriptor);
  rlk::v1::SideReply OpenSession();
  // The arena's id and its descriptor, -1 where it was refused.
  std::pair<std::string, int> OpenArena(rlk::v1::ArenaKind kind, int64_t bytes);
  // Reads until the server has closed the connection; the first packet that came, empty for none.
  rlk::v1::SideReply AwaitEnd();

 private:
  const int socket_;
};

// What a process of another user gets when it asks for a session and an arena.
struct SideResult {
  bool connected = false;
  // Of the first error; empty for none.
  std::string reason;
  bool descriptor = false;
};
SideResult AskAs(uint32_t uid, const std::string& path);

// A process of its own that holds a session and an arena until it is killed; returns when it has
// both, and -1 where it could not.
pid_t HoldArena(const std::string& path, rlk::v1::ArenaKind kind, int64_t bytes);

// Of the process, 0 for this one.
int OpenDescriptors(pid_t pid = 0);
// Of this process, those that are handles of processes.
int OpenPidfds();

}  // namespace rlk::test
