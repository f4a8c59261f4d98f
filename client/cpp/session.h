// The client's session: opened when it is first needed, kept alive, closed at the end. Internal.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/side_connection.h"
#include "rlk/v1/session.grpc.pb.h"

namespace rlk::client {

// Thread-safe.
class SessionHolder {
 public:
  struct Options {
    std::string address;
    // The address stands for several servers: none of them can have the session.
    bool several = false;
    // With one the session is somebody else's: it is used, and neither renewed nor closed.
    std::string session_token = {};
    std::chrono::milliseconds lease{0};
    // Of the caller; every call carries it. Empty for none.
    std::string bearer_token = {};
  };
  SessionHolder(std::shared_ptr<grpc::Channel> channel, Options options);
  // Closes a session of its own.
  ~SessionHolder();

  // The token, empty where there is no session.
  std::string token() const;
  // The token; opens the session if there is none. On a Unix socket that has a side socket beside
  // it, there: then the session ends with this process, however that ends. FAILED_PRECONDITION
  // (kWrongServer) where the address stands for several servers.
  absl::StatusOr<std::string> Require();
  // The connection that holds the session. FAILED_PRECONDITION (kPlacementUnavailable) where none
  // does; UNAVAILABLE or RESOURCE_EXHAUSTED where the server has a side socket that could not be
  // had: without a session, asking again later may help.
  absl::StatusOr<std::shared_ptr<SideConnection>> RequireSide();
  // Puts the tokens that there are into the metadata of a call.
  void Attach(grpc::ClientContext& context) const;

 private:
  // Under opening_. Without `by_call` no session is opened in another way than beside, where that
  // could be had later.
  absl::StatusOr<std::string> Open(bool by_call);
  absl::StatusOr<rlk::v1::OpenSessionResponse> OpenBeside(const std::string& path);
  absl::StatusOr<rlk::v1::OpenSessionResponse> OpenByCall();
  void Renew(std::chrono::milliseconds interval);

  const std::unique_ptr<rlk::v1::SessionService::Stub> stub_;
  const Options options_;
  mutable std::mutex mutex_;
  std::string token_;  // guarded by mutex_
  bool own_ = false;   // guarded by mutex_
  std::mutex opening_;
  // Null where the session was opened in another way.
  std::shared_ptr<SideConnection> side_;  // guarded by opening_
  // Why the side socket that there is was not to be had.
  absl::Status missed_;  // guarded by opening_
  std::condition_variable stop_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread renewer_;
};

}  // namespace rlk::client
