// Seeded malformed HTTP/2, gRPC and protobuf at the sockets of the program: it lives, and its bits
// are right afterwards.
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "tests/integration/fixture.h"
#include "tests/integration/http2_bytes.h"
#include "tests/integration/server_process.h"

namespace rlk::test {
namespace {

using rlk::v1::ActivationService;

constexpr uint64_t kSeed = 20240509;

int ConnectUnix(const std::string& path) {
  sockaddr_un to = {};
  to.sun_family = AF_UNIX;
  memcpy(to.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0) return fd;
  close(fd);
  return -1;
}

void Mutate(std::string& bytes, std::mt19937_64& random) {
  for (uint64_t steps = 1 + random() % 4; steps > 0; --steps) {
    const size_t at = bytes.empty() ? 0 : random() % bytes.size();
    switch (random() % 6) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<char>(random());
        break;
      case 1:
        if (!bytes.empty()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << (random() % 8)));
        break;
      case 2:
        bytes.insert(at, 1 + random() % 3, static_cast<char>(random()));
        break;
      case 3:
        bytes.erase(at, 1 + random() % 8);
        break;
      case 4:
        bytes.resize(at);
        break;
      default:
        bytes.insert(at, bytes.substr(random() % (bytes.size() + 1), random() % 64));
        break;
    }
  }
}

const char* const kPaths[] = {
    kForwardPath,
    "/rlk.v1.ActivationService/FinalLogitSoftcapBackward",
    "/rlk.v1.ServerService/GetInfo",
    "/rlk.v1.ServerService/ListOperators",
    "/grpc.health.v1.Health/Check",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    "/rlk.v1.ActivationService/NoSuchMethod",
};

// One connection's bytes: calls whose message, framing or whole stream is damaged.
std::string MakeSession(std::mt19937_64& random) {
  const std::string messages[] = {ForwardRequest().SerializeAsString(),
                                  BackwardRequest().SerializeAsString(),
                                  ForwardOfSize(500).SerializeAsString(), ""};
  std::string bytes = Preface();
  const uint64_t damage = random() % 4;
  for (uint32_t call = 0; call < 1 + random() % 3; ++call) {
    std::string message = messages[random() % 4];
    const std::string path = kPaths[random() % 3 ? random() % 2 : random() % 7];
    const uint32_t stream = 2 * call + 1;
    if (damage == 0) {
      // Whole frames around a damaged protobuf message.
      Mutate(message, random);
      bytes += UnaryCall(stream, path, message);
    } else if (damage == 1) {
      // A damaged length prefix or header block.
      std::string data = GrpcMessage(message), headers = RequestHeaders(path);
      Mutate(random() % 2 ? data : headers, random);
      bytes += Frame(kHeaders, kEndHeaders, stream, headers);
      bytes += Frame(kData, kEndStream, stream, data);
    } else {
      bytes += UnaryCall(stream, path, message);
    }
  }
  if (damage == 2) Mutate(bytes, random);
  if (damage == 3) {
    // Frames of any type, flag and stream behind good ones.
    for (uint64_t frames = 1 + random() % 8; frames > 0; --frames) {
      std::string payload(random() % 48, '\0');
      for (char& c : payload) c = static_cast<char>(random());
      bytes += Frame(static_cast<uint8_t>(random() % 11), static_cast<uint8_t>(random()),
                     static_cast<uint32_t>(random() % 9), payload);
    }
  }
  return bytes;
}

constexpr int kSilenceMs = 20;

// Reads until the server has been silent for a while and then until it closes, or leaves at once.
// The end of what is sent ends calls too: one that comes with the bytes finds most of them without
// their message.
void Talk(int fd, const std::string& bytes, bool listen) {
  ASSERT_GE(fd, 0);
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t got = send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (got <= 0) break;
    sent += static_cast<size_t>(got);
  }
  char buffer[4096];
  pollfd answer = {fd, POLLIN, 0};
  while (listen && poll(&answer, 1, kSilenceMs) > 0 && recv(fd, buffer, sizeof(buffer), 0) > 0) {
  }
  shutdown(fd, SHUT_WR);
  while (listen && recv(fd, buffer, sizeof(buffer), 0) > 0) {
  }
  close(fd);
}

std::string Answer(const std::string& target) {
  const auto stub = ActivationService::NewStub(DefaultChannel(target));
  grpc::ClientContext context;
  rlk::v1::FinalLogitSoftcapForwardResponse response;
  const grpc::Status status =
      stub->FinalLogitSoftcapForward(&context, ForwardOfSize(1000), &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.y().data();
}

TEST(SocketFuzzTest, MalformedBytesNeverTakeTheServerDown) {
  const int64_t cases = Count(400, 20000);
  TempDir dir;
  const std::string path = dir.File("rlk.sock");
  ServerProcess process({"--listen=127.0.0.1:0", "--metrics=127.0.0.1:0", "--unix=" + path,
                         "--selftest-interval-seconds=0", "--log-level=error"});
  const std::string expected = Answer(process.listen());
  ASSERT_EQ(expected.size(), 4000u);
  printf("seed %llu, %lld cases\n", static_cast<unsigned long long>(kSeed),
         static_cast<long long>(cases));
  std::mt19937_64 random(kSeed);
  for (int64_t i = 0; i < cases; ++i) {
    const int fd = i % 2 ? ConnectTcp(process.listen()) : ConnectUnix(path);
    Talk(fd, MakeSession(random), random() % 4 != 0);
    if (HasFatalFailure()) {
      FAIL() << "no connection at case " << i << "\n" << process.Stderr();
    }
  }
  EXPECT_EQ(Answer(process.listen()), expected);
  EXPECT_EQ(Answer("unix:" + path), expected);
  const std::string metrics = Scrape(process.metrics());
  const auto requests = [&](const std::string& code) {
    return SeriesValue(metrics, "rlk_requests_total{code=\"" + code +
                                    "\",direction=\"forward\",operator=\"final_logit_softcap\"}");
  };
  printf("forward calls that arrived: OK %.0f, INVALID_ARGUMENT %.0f; RSS %lld KiB\n",
         requests("OK"), requests("INVALID_ARGUMENT"),
         static_cast<long long>(process.rss_bytes() >> 10));
  // The door was passed: some sessions are good enough to compute, some to be refused by rlk.
  EXPECT_GT(requests("OK"), 2);
  EXPECT_GT(requests("INVALID_ARGUMENT"), 0);
  EXPECT_EQ(requests("INTERNAL"), 0);
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0) << process.Stderr();
}

}  // namespace
}  // namespace rlk::test
