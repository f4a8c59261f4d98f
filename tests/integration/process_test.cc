// The program rlk-server: its start, its errors, its end.
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "tests/integration/fixture.h"
#include "tests/integration/server_process.h"

namespace rlk::test {
namespace {

using rlk::v1::ActivationService;

std::vector<std::string> Arguments(std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {"--listen=127.0.0.1:0",
                                        "--metrics=", "--selftest-interval-seconds=0"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

bool Serves(const std::string& target) {
  const auto stub = ActivationService::NewStub(DefaultChannel(target));
  grpc::ClientContext context;
  rlk::v1::FinalLogitSoftcapForwardResponse response;
  return stub->FinalLogitSoftcapForward(&context, ForwardRequest(), &response).ok();
}

TEST(ProcessTest, FirstLineNamesTheAddresses) {
  TempDir dir;
  ServerProcess process({"--listen", "127.0.0.1:0,127.0.0.1:0", "--listen=127.0.0.1:0", "--unix",
                         dir.File("s.sock"), "--metrics", "127.0.0.1:0"});
  const auto& fields = process.line().fields();
  ASSERT_EQ(fields.size(), 7u) << process.first_line();
  EXPECT_EQ(fields.at("pid").number_value(), process.pid());
  EXPECT_EQ(fields.at("unix").string_value(), dir.File("s.sock"));
  EXPECT_EQ(fields.at("side").string_value(), dir.File("s.sock.side"));
  EXPECT_EQ(fields.at("server_id").string_value().size(), 32u);
  EXPECT_FALSE(Scrape(fields.at("metrics").string_value()).empty());
  ASSERT_EQ(fields.at("listen").list_value().values_size(), 3);
  for (const auto& address : fields.at("listen").list_value().values()) {
    EXPECT_TRUE(Serves(address.string_value()));
  }
  EXPECT_TRUE(Serves("unix:" + dir.File("s.sock")));
  struct stat info;
  ASSERT_EQ(stat(dir.File("s.sock").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(stat(dir.File("s.sock.side").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_FALSE(std::filesystem::exists(dir.File("s.sock.side")));
  EXPECT_FALSE(std::filesystem::exists(dir.File("s.sock")));
  EXPECT_FALSE(std::filesystem::exists(dir.File("s.sock.lock")));
}

// Until the delay is over every call ends well; later ones are answered or refused. Calls that are
// certainly in flight at its end are in drain_test.cc.
TEST(ProcessTest, TerminationUnderLoadFailsNoCallBeforeTheDelayIsOver) {
  using Clock = std::chrono::steady_clock;
  ServerProcess process(Arguments({"--drain-delay-seconds=1"}));
  const std::string target = process.listen();
  std::atomic<Clock::time_point> delay_over = Clock::time_point::max();
  std::atomic<int> before = 0, lost = 0, other = 0;
  std::vector<std::thread> clients;
  for (int c = 0; c < 4; ++c) {
    clients.emplace_back([&] {
      const auto stub = ActivationService::NewStub(DefaultChannel(target));
      while (true) {
        grpc::ClientContext context;
        rlk::v1::FinalLogitSoftcapForwardResponse response;
        const grpc::Status status =
            stub->FinalLogitSoftcapForward(&context, ForwardOfSize(20000), &response);
        if (status.ok()) {
          ++before;
          continue;
        }
        lost += Clock::now() < delay_over.load();
        // One that is half sent when the transport ends is cancelled.
        other += status.error_code() != grpc::StatusCode::UNAVAILABLE &&
                 status.error_code() != grpc::StatusCode::CANCELLED;
        return;
      }
    });
  }
  while (before < Count(40, 10000)) std::this_thread::yield();
  // Before the signal, so that the delay cannot be over earlier.
  delay_over = Clock::now() + std::chrono::seconds(1);
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(lost, 0);
  EXPECT_EQ(other, 0);
}

TEST(ProcessTest, SecondSignalEndsAtOnce) {
  ServerProcess process(Arguments({"--drain-delay-seconds=3600"}));
  ASSERT_FALSE(process.first_line().empty());
  process.Signal(SIGINT);
  // The line is written after the second signal got its meaning.
  while (process.Stderr().find("draining") == std::string::npos) std::this_thread::yield();
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 128 + SIGTERM);
}

// Or say what is wrong, on a host without IPv6.
// The two flags are about different things: how long to serve on, and how long calls may take then.
TEST(ProcessTest, TheDelayOfADrainWithoutPatienceIsADelayToo) {
  ServerProcess process(Arguments({"--drain-delay-seconds=86400", "--drain-seconds=0"}));
  process.Signal(SIGTERM);
  while (process.Stderr().find("draining") == std::string::npos) std::this_thread::yield();
  const auto channel = DefaultChannel(process.listen());
  while (CallRaw(channel, "/grpc.health.v1.Health/Check", "").bytes == "\x08\x01") {
    std::this_thread::yield();
  }
  EXPECT_TRUE(Serves(process.listen()));
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 128 + SIGTERM);
}

// GNU timeout, for one, sends its signal to the child and to the group that the child is in. Both
// lie there when the process goes on.
TEST(ProcessTest, SignalsThatComeTogetherAreOneEnd) {
  ServerProcess process(Arguments());
  ASSERT_FALSE(process.first_line().empty());
  process.Signal(SIGSTOP);
  ASSERT_EQ(waitpid(process.pid(), nullptr, WUNTRACED), process.pid());
  process.Signal(SIGTERM);
  process.Signal(SIGINT);
  process.Signal(SIGCONT);
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_NE(process.Stderr().find("drained"), std::string::npos) << process.Stderr();
}

// Else the first sockets would have these numbers, and the log would go into them.
TEST(ProcessTest, StandardDescriptorsThatAreNotThereAreOpened) {
  TempDir dir;
  const std::string path = dir.File("s.sock");
  ServerProcess process({"--listen=", "--metrics=", "--log-level=debug", "--unix=" + path},
                        ServerProcess::Program::kServer, ServerProcess::Standard::kNone);
  const auto stub = ActivationService::NewStub(DefaultChannel("unix:" + path));
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    rlk::v1::FinalLogitSoftcapForwardResponse response;
    const grpc::Status status =
        stub->FinalLogitSoftcapForward(&context, ForwardRequest(), &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  const std::string folder = "/proc/" + std::to_string(process.pid()) + "/fd/";
  // What libraries open before main may have got 0, which nobody writes to.
  for (const char* fd : {"1", "2"}) {
    EXPECT_EQ(std::filesystem::read_symlink(folder + fd), "/dev/null");
  }
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
}

TEST(ProcessTest, AFirstLineThatIsNotTakenIsInTheLog) {
  TempDir dir;
  const std::string path = dir.File("s.sock");
  ServerProcess process({"--listen=", "--metrics=", "--unix=" + path},
                        ServerProcess::Program::kServer, ServerProcess::Standard::kFullStdout);
  const std::string said = "standard output does not take the first line";
  while (process.Stderr().find(said) == std::string::npos) std::this_thread::yield();
  EXPECT_NE(process.Stderr().find(path), std::string::npos) << process.Stderr();
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
}

TEST(ProcessTest, MetricsAreServedOnAnAddressOfIpv6) {
  ServerProcess process({"--listen=127.0.0.1:0", "--metrics=[::1]:0"});
  if (!process.first_line().empty()) {
    EXPECT_EQ(process.line().fields().at("metrics").string_value().rfind("[::1]:", 0), 0u);
    process.Signal(SIGTERM);
    EXPECT_EQ(process.Wait(), 0);
    return;
  }
  EXPECT_EQ(process.Wait(), 1);
  const std::string log = process.Stderr();
  EXPECT_NE(log.find("--metrics"), std::string::npos) << log;
  EXPECT_TRUE(log.find("Cannot assign requested address") != std::string::npos ||
              log.find("Address family not supported") != std::string::npos)
      << log;
}

TEST(ProcessTest, PortOrSocketInUseIsAnErrorNamingTheFlag) {
  TempDir dir;
  const std::string path = dir.File("s.sock");
  ServerProcess first({"--listen=127.0.0.1:0", "--metrics=127.0.0.1:0", "--unix=" + path});
  ASSERT_FALSE(first.first_line().empty());
  const std::string metrics = first.line().fields().at("metrics").string_value();
  const struct {
    std::vector<std::string> arguments;
    const char* flag;
  } cases[] = {
      {{"--listen=" + first.listen(), "--metrics="}, "--listen"},
      {{"--listen=127.0.0.1:0", "--metrics=", "--unix=" + path}, "--unix"},
      {{"--listen=127.0.0.1:0", "--metrics=" + metrics}, "--metrics"},
      {{"--listen=127.0.0.1:0", "--metrics=", "--unix=" + std::string(200, 'p')}, "--unix"},
      {{"--listen=127.0.0.1:0", "--metrics=", "--unix=/nonexistent/s.sock"}, "--unix"},
      {{"--listen=192.0.2.1:1", "--metrics="}, "--listen"},
      {{"--listen=no-such-host.invalid:1", "--metrics="}, "--listen"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.arguments.back());
    ServerProcess second(c.arguments);
    EXPECT_EQ(second.Wait(), 1);
    EXPECT_EQ(second.first_line(), "") << "nothing is announced that does not serve";
    EXPECT_NE(second.Stderr().find(std::string("\"reason\":\"") + c.flag), std::string::npos)
        << second.Stderr();
  }
  EXPECT_TRUE(Serves(first.listen()));
  EXPECT_TRUE(Serves("unix:" + path));
}

TEST(ProcessTest, SocketOfADeadServerIsReplaced) {
  TempDir dir;
  const std::string path = dir.File("s.sock");
  {
    ServerProcess dead(Arguments({"--unix=" + path}));
    dead.Signal(SIGKILL);
    dead.Wait();
  }
  ASSERT_TRUE(std::filesystem::exists(path));
  ServerProcess next(Arguments({"--unix=" + path}));
  EXPECT_TRUE(Serves("unix:" + path));
}

TEST(ProcessTest, FileThatIsNoSocketIsNotReplaced) {
  TempDir dir;
  const std::string path = dir.File("precious");
  std::ofstream(path) << "data";
  ServerProcess process(Arguments({"--unix=" + path}));
  EXPECT_EQ(process.Wait(), 1);
  std::ifstream file(path);
  std::string text;
  file >> text;
  EXPECT_EQ(text, "data");
}

// A path is no URI: the socket lies where the flag says, so that the lock guards it.
TEST(ProcessTest, SocketPathsAreTakenLiterally) {
  TempDir dir;
  for (const std::string name : {"a%41", "b%", "c#d", "e?f", "g h", "%2Fi"}) {
    ServerProcess process(Arguments({"--unix=" + dir.File(name)}));
    ASSERT_FALSE(process.first_line().empty()) << name;
    EXPECT_EQ(process.line().fields().at("unix").string_value(), dir.File(name));
    struct stat info;
    ASSERT_EQ(stat(dir.File(name).c_str(), &info), 0) << name;
    EXPECT_TRUE(S_ISSOCK(info.st_mode)) << name;
    process.Signal(SIGTERM);
    EXPECT_EQ(process.Wait(), 0);
    EXPECT_FALSE(std::filesystem::exists(dir.File(name)));
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.File("")), {}), 0);
}

// Whoever opens more connections than the server takes loses those above the bound, and the server
// takes new ones when old ones go.
TEST(ProcessTest, ConnectionsAboveTheBoundDoNotStopTheListener) {
  ServerProcess process(Arguments({"--connections-max=8"}));
  std::vector<int> idle;
  for (int i = 0; i < 64; ++i) idle.push_back(ConnectTcp(process.listen()));
  // The kernel hands connections over in order: when the last is closed all have been looked at.
  char byte;
  EXPECT_LE(recv(idle.back(), &byte, 1, 0), 0);
  EXPECT_FALSE(Serves(process.listen()));
  for (const int fd : idle) close(fd);
  const auto stub = ActivationService::NewStub(DefaultChannel(process.listen()));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  rlk::v1::FinalLogitSoftcapForwardResponse response;
  EXPECT_TRUE(stub->FinalLogitSoftcapForward(&context, ForwardRequest(), &response).ok());
}

TEST(ProcessTest, MoreThreadsThanTheHostGivesIsAnErrorOfTheStart) {
  if (geteuid() == 0) GTEST_SKIP() << "root has no bound on processes";
  rlimit limit, none;
  ASSERT_EQ(getrlimit(RLIMIT_NPROC, &limit), 0);
  none = limit;
  none.rlim_cur = 1;
  ASSERT_EQ(setrlimit(RLIMIT_NPROC, &none), 0);
  ServerProcess process(Arguments({"--threads=64"}));
  ASSERT_EQ(setrlimit(RLIMIT_NPROC, &limit), 0);
  EXPECT_EQ(process.Wait(), 1);
}

TEST(ProcessTest, WrongFlagsEndWithTheirOwnCode) {
  for (const char* flag : {"--no-such-flag=1", "--threads=many", "--listen=here", "positional",
                           "--rank-max=9", "--flagfile=/nonexistent"}) {
    ServerProcess process({flag});
    EXPECT_EQ(process.Wait(), 2) << flag;
    EXPECT_EQ(process.first_line(), "");
  }
  for (const char* flag : {"--help", "--version"}) {
    ServerProcess process({flag});
    EXPECT_EQ(process.Wait(), 0) << flag;
    EXPECT_NE(process.first_line().find("rlk-server"), std::string::npos);
  }
}

}  // namespace
}  // namespace rlk::test
