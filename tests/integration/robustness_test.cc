// Bytes that are no HTTP/2, connections that end in the middle, and many at once.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/integration/fixture.h"
#include "tests/integration/http2_bytes.h"

namespace rlk::test {
namespace {

bool Serves(const TestServer& server) {
  const auto stub = rlk::v1::ActivationService::NewStub(DefaultChannel(server.tcp()));
  grpc::ClientContext context;
  rlk::v1::FinalLogitSoftcapForwardResponse response;
  return stub->FinalLogitSoftcapForward(&context, ForwardRequest(), &response).ok();
}

// Sends and reads until the server closes, or closes itself at once.
void SendAndLeave(const std::string& address, const std::string& bytes, bool wait_for_close) {
  const int fd = ConnectTcp(address);
  ASSERT_GE(fd, 0);
  (void)send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  shutdown(fd, SHUT_WR);
  char buffer[4096];
  while (wait_for_close && recv(fd, buffer, sizeof(buffer), 0) > 0) {
  }
  close(fd);
}

TEST(RobustnessTest, GarbageOnTheWireDoesNotStopTheServer) {
  TestServer server;
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  const std::string settings("\0\0\0\4\0\0\0\0\0", 9);
  const std::string cases[] = {
      "",
      "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
      preface.substr(0, 10),
      preface + std::string("\xff\xff\xff\x01\xff\xff\xff\xff\xff", 9),  // an absurd length
      preface + settings + std::string("\0\0\5\1\5\0\0\0\1\xff\xff\xff\xff\xff", 14),  // bad HPACK
      preface + settings + std::string("\0\0\4\0\1\0\0\0\7data", 13),        // DATA on no stream
      preface + settings + std::string("\0\0\4\x08\0\0\0\0\0\0\0\0\0", 13),  // WINDOW_UPDATE of 0
      preface + settings + std::string("\0\0\4\3\0\0\0\0\0\0\0\0\1", 13),    // RST_STREAM on 0
  };
  for (const std::string& bytes : cases) {
    SendAndLeave(server.tcp(), bytes, true);
    SendAndLeave(server.tcp(), bytes, false);
  }
  EXPECT_TRUE(Serves(server));
}

TEST(RobustnessTest, RandomFramesDoNotStopTheServer) {
  TestServer server;
  constexpr uint32_t kSeed = 20240229;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  for (int i = 0; i < 200; ++i) {
    std::string bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    bytes += std::string("\0\0\0\4\0\0\0\0\0", 9);
    const int frames = 1 + static_cast<int>(random() % 4);
    for (int f = 0; f < frames; ++f) {
      const size_t length = random() % 64;
      bytes += std::string("\0\0", 2) + static_cast<char>(length);
      bytes += static_cast<char>(random() % 11);
      bytes += static_cast<char>(random());
      bytes += std::string("\0\0\0", 3) + static_cast<char>(random() % 6);
      for (size_t b = 0; b < length; ++b) bytes += static_cast<char>(random());
    }
    SendAndLeave(server.tcp(), bytes, i % 2 == 0);
  }
  EXPECT_TRUE(Serves(server));
}

// A peer that went away without a word: its connection is closed, whatever it had begun. The test
// waits for that as long as it takes.
TEST(RobustnessTest, ConnectionsWhosePeerDoesNotAnswerAreClosed) {
  server::Options options = TestOptions();
  options.keepalive_ms = 100;
  options.keepalive_timeout_ms = 500;
  TestServer server(options);
  const auto live = rlk::v1::ActivationService::NewStub(DefaultChannel(server.tcp()));
  const std::string call = UnaryCall(1, kForwardPath, std::string(100, 'x'));
  const struct {
    const char* name;
    std::string bytes;
  } cases[] = {
      {"before the preface", ""},
      {"in the preface", Preface().substr(0, 10)},
      {"after the preface", Preface()},
      {"in a frame", Preface() + call.substr(0, call.size() - 50)},
      {"with a request that does not end",
       Preface() + Frame(kHeaders, kEndHeaders, 1, RequestHeaders(kForwardPath))},
  };
  for (const auto& [name, bytes] : cases) {
    SCOPED_TRACE(name);
    const int fd = ConnectTcp(server.tcp());
    ASSERT_GE(fd, 0);
    ASSERT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    // Reads, but never answers a PING.
    char buffer[4096];
    while (recv(fd, buffer, sizeof(buffer), 0) > 0) {
    }
    close(fd);
    // Who answers is served. On a machine that stands still for the time-out nobody answers: a
    // client that was closed for that connects again.
    grpc::Status status;
    do {
      grpc::ClientContext context;
      context.set_wait_for_ready(true);
      rlk::v1::FinalLogitSoftcapForwardResponse response;
      status = live->FinalLogitSoftcapForward(&context, ForwardRequest(), &response);
      ASSERT_TRUE(status.ok() || status.error_code() == grpc::StatusCode::UNAVAILABLE)
          << status.error_message();
    } while (!status.ok());
  }
}

// Who leaves before its message has come broke no contract. Calls are sent until one is counted: of
// those that are gone early enough gRPC does not tell.
TEST(RobustnessTest, CallsThatEndBeforeTheirMessageAreCountedAsWhatTheyAre) {
  constexpr char kCompare[] = "/rlk.v1.ParityService/Compare";
  constexpr char kDownload[] = "/rlk.v1.TensorService/Download";
  enum class End { kCancelled, kLate, kHalfClosed };
  const auto call = [](const char* path, End end, uint32_t stream) {
    const uint8_t flags = end == End::kHalfClosed ? kEndHeaders | kEndStream : kEndHeaders;
    std::string bytes =
        Frame(kHeaders, flags, stream, RequestHeaders(path, end == End::kLate ? "1m" : ""));
    const std::string cancel("\0\0\0\x08", 4);
    return end == End::kCancelled ? bytes + Frame(kRstStream, 0, stream, cancel) : bytes;
  };
  const std::string malformed = R"(rlk_contract_rejections_total{reason="MALFORMED_MESSAGE"})";
  const std::string given_up = R"(rlk_cancelled_total{stage="queue"})";
  const auto calls = [](const std::string& code) {
    return "rlk_requests_total{code=\"" + code +
           "\",direction=\"forward\",operator=\"final_logit_softcap\"}";
  };
  const std::vector<std::string> mistakes = {malformed, calls("INVALID_ARGUMENT")};
  const std::vector<std::string> leavings = {given_up, calls("CANCELLED"),
                                             calls("DEADLINE_EXCEEDED")};
  const struct {
    const char* name;
    const char* path;
    End end;
    // What moves; empty where calls of that service are not counted.
    std::vector<std::string> counted;
  } cases[] = {
      {"cancelled", kForwardPath, End::kCancelled, {given_up, calls("CANCELLED")}},
      {"late", kForwardPath, End::kLate, {given_up, calls("DEADLINE_EXCEEDED")}},
      {"no message", kForwardPath, End::kHalfClosed, {malformed, calls("INVALID_ARGUMENT")}},
      {"a comparison cancelled", kCompare, End::kCancelled, {}},
      {"a download cancelled", kDownload, End::kCancelled, {}},
      {"a comparison without a message", kCompare, End::kHalfClosed, {malformed}},
      {"a download without a message", kDownload, End::kHalfClosed, {malformed}},
  };
  for (const auto& [name, path, end, counted] : cases) {
    SCOPED_TRACE(name);
    TestServer server;
    const int fd = ConnectTcp(server.tcp());
    ASSERT_GE(fd, 0);
    std::string bytes = Preface();
    bool all = false;
    for (uint32_t stream = 1; stream < 20 || !all; stream += 2) {
      bytes += call(path, end, stream);
      ASSERT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(bytes.size()));
      bytes.clear();
      char buffer[4096];
      while (recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT) > 0) {
      }
      const std::string page = Scrape(server.metrics());
      all = std::all_of(counted.begin(), counted.end(), [&page](const std::string& series) {
        return SeriesValue(page, series) > 0;
      });
    }
    // What the transport still has of the calls ends with it.
    EXPECT_TRUE(server.server().Drain(0, 1));
    for (const std::string& series : end == End::kHalfClosed ? leavings : mistakes) {
      EXPECT_EQ(SeriesValue(Scrape(server.metrics()), series), 0) << series;
    }
    close(fd);
  }
}

TEST(RobustnessTest, GarbageOnTheMetricsPortDoesNotStopTheServer) {
  TestServer server;
  for (const std::string bytes : {"\xff\xfe\xfd", "GET /../../etc/passwd HTTP/1.1\r\n\r\n",
                                  "POST /metrics HTTP/1.1\r\nContent-Length: -1\r\n\r\n"}) {
    SendAndLeave(server.metrics(), bytes, true);
  }
  EXPECT_FALSE(Scrape(server.metrics()).empty());
  EXPECT_TRUE(Serves(server));
}

TEST(RobustnessTest, IdleConnectionsDoNotKeepScrapesOut) {
  TestServer server;
  std::vector<int> idle;
  for (int i = 0; i < 16; ++i) {
    idle.push_back(ConnectTcp(server.metrics()));
    const std::string_view begin = i % 2 ? "GET /metrics HTTP/1.1\r\n" : "";
    (void)send(idle.back(), begin.data(), begin.size(), MSG_NOSIGNAL);
  }
  EXPECT_FALSE(Scrape(server.metrics()).empty());
  for (const int fd : idle) close(fd);
}

}  // namespace
}  // namespace rlk::test
