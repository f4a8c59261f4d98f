// Checks that wait for a server that says nothing.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "rlk/v1/parity.grpc.pb.h"
#include "tests/integration/fixture.h"

namespace rlk::test {

// A socket on loopback: bound alone it refuses connections, listening it takes them and says
// nothing.
class DeafSocket {
 public:
  explicit DeafSocket(bool listening) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_TRUE(!listening || listen(fd_, 64) == 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  ~DeafSocket() {
    if (caller_ >= 0) close(caller_);
    close(fd_);
  }
  const std::string& address() const { return address_; }

  // Blocks until somebody connects, and says as much as HTTP/2 needs (empty SETTINGS) for the
  // connection to count as made. Then nothing.
  void Greet() {
    caller_ = accept(fd_, nullptr, nullptr);
    constexpr unsigned char kSettings[9] = {0, 0, 0, 4, 0, 0, 0, 0, 0};
    EXPECT_EQ(send(caller_, kSettings, sizeof(kSettings), MSG_NOSIGNAL), 9);
  }

 private:
  const int fd_;
  int caller_ = -1;
  std::string address_;
};

class StuckChecks {
 public:
  StuckChecks(TestServer& server, const std::string& deaf, int count)
      : stub_(rlk::v1::ParityService::NewStub(DefaultChannel(server.tcp()))) {
    request_.mutable_invocation()->set_method("final_logit_softcap.forward");
    request_.mutable_invocation()->mutable_request()->PackFrom(ForwardRequest());
    request_.mutable_right()->set_server(deaf);
    for (int i = 0; i < count; ++i) Start();
  }

  // Blocks until so many have ended.
  void AwaitEnded(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_.size() >= count; });
  }
  std::vector<grpc::Status> ended() {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  void Cancel() {
    for (const auto& call : calls_) call->context.TryCancel();
  }

 private:
  struct Call {
    grpc::ClientContext context;
    rlk::v1::CheckParityResponse response;
  };

  void Start() {
    Call& call = *calls_.emplace_back(std::make_unique<Call>());
    stub_->async()->CheckParity(&call.context, &request_, &call.response,
                                [this](grpc::Status status) {
                                  const std::lock_guard lock(mutex_);
                                  ended_.push_back(std::move(status));
                                  changed_.notify_all();
                                });
  }

  const std::unique_ptr<rlk::v1::ParityService::Stub> stub_;
  rlk::v1::CheckParityRequest request_;
  std::vector<std::unique_ptr<Call>> calls_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<grpc::Status> ended_;
};

}  // namespace rlk::test
