// Another rlk server, as a side of a parity check. The only place where a server calls another one.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/descriptor.h"
#include "kernels/core/limits.h"
#include "rlk/v1/server.pb.h"
#include "rlk/v1/session.grpc.pb.h"
#include "rlk/v1/tensor_service.grpc.pb.h"
#include "server/parity/call_runner.h"
#include "server/parity/check_context.h"

namespace rlk::server {

// The servers that --parity-peer lists; nobody else is ever dialled. Thread-safe.
class PeerList {
 public:
  // Files; empty for none. With authorities the servers are called with TLS, and their certificates
  // are to be of those; the token is one that they take.
  struct Credentials {
    std::string authorities, token;
  };
  // `addresses` are "host:port", as the flag has checked. Errors name the flag of a file.
  static absl::StatusOr<std::unique_ptr<PeerList>> Make(std::vector<std::string> addresses,
                                                        const Credentials& files);

  // The channel to a listed server; it connects when it is first used. FAILED_PRECONDITION
  // (kPeerNotListed) for any other address.
  absl::StatusOr<std::shared_ptr<grpc::Channel>> ChannelTo(const std::string& address);

 private:
  PeerList(std::vector<std::string> addresses,
           std::shared_ptr<grpc::ChannelCredentials> credentials)
      : addresses_(std::move(addresses)), credentials_(std::move(credentials)) {}

  const std::vector<std::string> addresses_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_;  // guarded by mutex_
};

// Runs calls on one peer. Inputs that do not fit a message, and outputs that do not fit a reply, go
// through a session on the peer, which is closed in the end and takes all of them with it. One
// thread at a time.
//
// Errors are the peer's own, with "server." before their field; UNAVAILABLE (kPeerUnreachable) and
// DEADLINE_EXCEEDED name the address. Calls end a little before the check's deadline, so that the
// error reaches the caller.
class PeerRunner final : public CallRunner {
 public:
  PeerRunner(std::string address, const std::shared_ptr<grpc::Channel>& channel,
             SideOptions options, const Limits& limits);
  ~PeerRunner() override;

  // Asks who the peer is: the first thing that is said to it.
  absl::StatusOr<rlk::v1::GetInfoResponse> GetInfo(CheckContext& context);

  absl::StatusOr<MethodRun> Run(const ValueCall& call, std::byte fill,
                                CheckContext& context) override;

 private:
  struct Methods;

  absl::StatusOr<grpc::ByteBuffer> Encode(const ValueCall& call, bool upload,
                                          CheckContext& context);
  absl::StatusOr<MethodRun> Decode(const ValueCall& call, const grpc::ByteBuffer& reply,
                                   CheckContext& context);
  absl::Status OpenSession(CheckContext& context);
  absl::StatusOr<rlk::v1::TensorHandle> Upload(const HostTensor& tensor, CheckContext& context);
  absl::StatusOr<HostTensor> Download(const rlk::v1::Tensor& tensor, CheckContext& context);

  const std::string address_;
  const SideOptions options_;
  const Limits& limits_;
  grpc::GenericStub stub_;
  const std::unique_ptr<rlk::v1::SessionService::Stub> sessions_;
  const std::unique_ptr<rlk::v1::TensorService::Stub> tensors_;
  std::string session_;
  // Of the check.
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::time_point::max();
  // Of the peer; until it is asked, our own.
  int64_t inline_bytes_max_;
  int64_t chunk_bytes_max_;
  // By the address of their elements, which the check keeps.
  std::map<const std::byte*, std::pair<HostTensor, rlk::v1::TensorHandle>> uploaded_;
};

}  // namespace rlk::server
