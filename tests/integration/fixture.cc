#include "tests/integration/fixture.h"

#include <arpa/inet.h>
#include <grpcpp/generic/generic_stub.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <iostream>
#include <sstream>

#include "google/rpc/status.pb.h"

namespace rlk::test {

TempDir::TempDir() {
  char path[] = "/tmp/rlk-test-XXXXXX";
  if (mkdtemp(path) == nullptr) abort();
  path_ = path;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

server::Options TestOptions() {
  server::Options options;
  options.listen = {"127.0.0.1:0"};
  options.metrics = "127.0.0.1:0";
  options.threads = 1;
  options.selftest_interval_seconds = 0;
  return options;
}

TestServer::TestServer(server::Options options, server::ServerHooks hooks, server::LogLevel level,
                       int log_descriptor)
    : logger_(level, log_descriptor) {
  auto started = server::Server::Start(options, &logger_, std::move(hooks));
  if (!started.ok()) {
    std::cerr << started.status() << "\n";
    abort();
  }
  server_ = *std::move(started);
}

int64_t Count(int64_t usual, int64_t full) {
  const char* value = std::getenv("RLK_TEST_FULL");
  return value != nullptr && std::string(value) == "1" ? full : usual;
}

std::shared_ptr<grpc::Channel> DefaultChannel(const std::string& target) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

std::vector<float> FloatsOf(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

rlk::v1::FinalLogitSoftcapForwardRequest ForwardRequest() {
  rlk::v1::FinalLogitSoftcapForwardRequest request;
  rlk::v1::Tensor& x = *request.mutable_x();
  x.set_dtype(rlk::v1::DATA_TYPE_F32);
  x.add_shape(2);
  x.add_shape(3);
  x.set_data(BytesOf<float>({-40.0f, -1.5f, -0.0f, 0.25f, 20.0f, 1000.0f}));
  request.set_softcap(20);
  return request;
}

rlk::v1::FinalLogitSoftcapBackwardRequest BackwardRequest() {
  rlk::v1::FinalLogitSoftcapBackwardRequest request;
  *request.mutable_x() = ForwardRequest().x();
  *request.mutable_grad_y() = request.x();
  request.mutable_grad_y()->set_data(BytesOf<float>({1, 1, 1, 0.5f, -2, 1}));
  request.set_softcap(20);
  return request;
}

rlk::v1::FinalLogitSoftcapForwardRequest ForwardOfSize(int64_t elements) {
  rlk::v1::FinalLogitSoftcapForwardRequest request;
  rlk::v1::Tensor& x = *request.mutable_x();
  x.set_dtype(rlk::v1::DATA_TYPE_F32);
  x.add_shape(elements);
  std::vector<float> values(static_cast<size_t>(elements));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<int>(i * 7919 % 4001) - 2000) * 0.05f;
  }
  x.set_data(BytesOf(values));
  return request;
}

ErrorFacts FactsOf(const grpc::Status& status) {
  ErrorFacts facts;
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return facts;
  for (const google::protobuf::Any& any : details.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::BadRequest bad_request;
    google::rpc::RetryInfo retry;
    if (any.UnpackTo(&info)) {
      facts.has_error_info = true;
      facts.domain = info.domain();
      facts.reason = info.reason();
      facts.metadata = {info.metadata().begin(), info.metadata().end()};
    } else if (any.UnpackTo(&bad_request)) {
      facts.violated_field = bad_request.field_violations(0).field();
    } else if (any.UnpackTo(&retry)) {
      facts.has_retry_info = true;
      facts.retry_seconds = static_cast<double>(retry.retry_delay().seconds()) +
                            static_cast<double>(retry.retry_delay().nanos()) * 1e-9;
    }
  }
  return facts;
}

RawReply CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& path,
                 const std::string& request) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  const grpc::Slice slice(request);
  grpc::ByteBuffer in(&slice, 1), out;
  // Shared: gRPC's thread may still be inside set_value when the status is here.
  auto done = std::make_shared<std::promise<grpc::Status>>();
  std::future<grpc::Status> status = done->get_future();
  stub.UnaryCall(&context, path, grpc::StubOptions(), &in, &out,
                 [done](grpc::Status ended) { done->set_value(std::move(ended)); });
  RawReply reply;
  reply.status = status.get();
  if (reply.status.ok()) {
    std::vector<grpc::Slice> slices;
    (void)out.Dump(&slices);
    for (const grpc::Slice& piece : slices) {
      reply.bytes.append(reinterpret_cast<const char*>(piece.begin()), piece.size());
    }
  }
  return reply;
}

int ConnectTcp(const std::string& address) {
  const size_t colon = address.rfind(':');
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
  if (inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr) != 1) return -1;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0) return fd;
  close(fd);
  return -1;
}

std::string Scrape(const std::string& address) {
  const int fd = ConnectTcp(address);
  if (fd < 0) abort();
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  if (send(fd, request.data(), request.size(), MSG_NOSIGNAL) < 0) abort();
  std::string reply;
  char buffer[4096];
  for (ssize_t got; (got = recv(fd, buffer, sizeof(buffer), 0)) > 0;) {
    reply.append(buffer, static_cast<size_t>(got));
  }
  close(fd);
  if (reply.compare(0, 12, "HTTP/1.1 200") != 0) abort();
  return reply.substr(reply.find("\r\n\r\n") + 4);
}

double SeriesValue(const std::string& text, const std::string& series) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.compare(0, series.size() + 1, series + " ") == 0) {
      return std::stod(line.substr(series.size() + 1));
    }
  }
  return std::nan("");
}

}  // namespace rlk::test
