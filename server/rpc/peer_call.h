// One RPC to a peer: its deadline, its cancellation, and its errors as ours.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "kernels/core/limits.h"
#include "server/parity/check_context.h"

namespace rlk::server {

inline constexpr char kPeerSessionKey[] = "rlk-session";

// How long a call of a peer may take for a check that ends at `deadline`: at most `most`, and at
// the latest a tenth of the time left before the deadline, so that the error still arrives.
std::chrono::milliseconds PeerTime(std::chrono::steady_clock::time_point deadline,
                                   std::chrono::steady_clock::time_point now,
                                   std::chrono::milliseconds most);

class PeerCall {
 public:
  // With `session`, if it is not empty, in the metadata. The call may take PeerTime of
  // limits.parity_peer_ms_max.
  PeerCall(const std::string& address, const Limits& limits, CheckContext& check,
           const std::string& session);
  ~PeerCall();
  PeerCall(const PeerCall&) = delete;
  PeerCall& operator=(const PeerCall&) = delete;

  grpc::ClientContext* context() { return &context_; }

  // Ends when the caller of the check goes.
  absl::StatusOr<grpc::ByteBuffer> Unary(grpc::GenericStub& stub, const std::string& path,
                                         const grpc::ByteBuffer& request);
  absl::Status Unary(grpc::GenericStub& stub, const std::string& path,
                     const google::protobuf::Message& request, google::protobuf::Message* response);

  // From here on another thread looks whether the caller is still there, and cancels the RPC where
  // it is not: for streams, whose own thread blocks.
  void WatchCaller();

  // The status of the RPC for the caller of the check.
  absl::Status Result(const grpc::Status& status) const;

 private:
  const std::string& address_;
  CheckContext& check_;
  grpc::ClientContext context_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread watch_;
};

}  // namespace rlk::server
