// What the integration tests share: a server in this process on free ports, stubs on default
// channels, requests, and a look into error details and metrics.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"
#include "rlk/v1/activation.grpc.pb.h"
#include "rlk/v1/server.grpc.pb.h"
#include "server/server.h"

namespace rlk::test {

// A fresh directory, removed with its content at the end.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Options with port 0 everywhere and no self-test.
server::Options TestOptions();

// A server of this process. Aborts where it cannot start.
class TestServer {
 public:
  // Logs errors to `log_descriptor`, more with another level.
  explicit TestServer(server::Options options = TestOptions(), server::ServerHooks hooks = {},
                      server::LogLevel level = server::LogLevel::kError, int log_descriptor = 2);

  server::Server& server() { return *server_; }
  std::string tcp() const { return server_->addresses().listen.at(0); }
  std::string unix_target() const { return "unix:" + server_->addresses().unix_path; }
  std::string metrics() const { return server_->addresses().metrics; }

 private:
  server::Logger logger_;
  std::unique_ptr<server::Server> server_;
};

// `full` where RLK_TEST_FULL=1, else `usual`.
int64_t Count(int64_t usual, int64_t full);

// A channel with gRPC's defaults, not shared with other channels of the process.
std::shared_ptr<grpc::Channel> DefaultChannel(const std::string& target);

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

std::vector<float> FloatsOf(const std::string& bytes);

// [2, 3] FP32 with values around the bend, softcap 20.
rlk::v1::FinalLogitSoftcapForwardRequest ForwardRequest();
rlk::v1::FinalLogitSoftcapBackwardRequest BackwardRequest();

// FP32 [elements].
rlk::v1::FinalLogitSoftcapForwardRequest ForwardOfSize(int64_t elements);

// What the details of a status say.
struct ErrorFacts {
  bool has_error_info = false;
  std::string domain, reason;
  std::map<std::string, std::string> metadata;
  std::string violated_field;
  bool has_retry_info = false;
  double retry_seconds = 0;
};
ErrorFacts FactsOf(const grpc::Status& status);

// A unary call with bytes as they are.
struct RawReply {
  grpc::Status status;
  std::string bytes;
};
RawReply CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& path,
                 const std::string& request);

inline constexpr char kForwardPath[] = "/rlk.v1.ActivationService/FinalLogitSoftcapForward";

// GET http://ADDRESS/metrics: the body. Aborts where nobody answers with 200.
std::string Scrape(const std::string& address);
// The value of the series that is spelled so; NaN where it is absent.
double SeriesValue(const std::string& text, const std::string& series);

// Connects a stream socket to HOST:PORT (an IPv4 literal); -1 on failure.
int ConnectTcp(const std::string& address);

}  // namespace rlk::test
