// The status map and the trace context apart from a server.
#include <arpa/inet.h>
#include <fcntl.h>
#include <grpc/support/log.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <future>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "kernels/core/limits.h"
#include "kernels/core/status.h"
#include "server/provenance.h"
#include "server/rpc/call_counter.h"
#include "server/rpc/connection_bound.h"
#include "server/rpc/grpc_log.h"
#include "server/rpc/side_worker.h"
#include "server/rpc/status_map.h"
#include "server/rpc/trace_context.h"
#include "tests/integration/fixture.h"

namespace rlk::test {
namespace {

using server::ParseTraceparent;
using server::ToGrpcStatus;

// A listener that does not block, on a free port of the loopback.
class Listener {
 public:
  Listener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(fd_, 64), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  ~Listener() { close(fd_); }
  int fd() const { return fd_; }
  const std::string& address() const { return address_; }

  // Takes what waits, as gRPC does.
  std::vector<int> AcceptAll() const {
    std::vector<int> accepted;
    for (;;) {
      const int fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) break;
      accepted.push_back(fd);
    }
    EXPECT_EQ(errno, EAGAIN);
    return accepted;
  }

 private:
  int fd_;
  std::string address_;
};

// Clients that hold their descriptors outside the counted ones: a child would be truer, but a copy
// with a high number serves as well.
int HighConnection(const std::string& address) {
  const int fd = ConnectTcp(address);
  const int high = fcntl(fd, F_DUPFD_CLOEXEC, 500);
  close(fd);
  return high;
}

TEST(ConnectionBoundTest, ClosesWhatIsAboveAndTakesNewOnesWhenOldOnesGo) {
  const Listener listener;
  EXPECT_EQ(server::BoundConnections(3), 3);
  std::vector<int> clients;
  for (int i = 0; i < 10; ++i) clients.push_back(HighConnection(listener.address()));
  std::vector<int> accepted = listener.AcceptAll();
  EXPECT_EQ(accepted.size(), 3u);
  char byte;
  EXPECT_LE(recv(clients.back(), &byte, 1, 0), 0);
  close(accepted.back());
  accepted.pop_back();
  clients.push_back(HighConnection(listener.address()));
  std::vector<int> more = listener.AcceptAll();
  EXPECT_EQ(more.size(), 1u);
  for (const auto* list : {&accepted, &more, &clients}) {
    for (const int fd : *list) close(fd);
  }
  server::BoundConnections(Limits().connections_max);
}

// However fast they come, the log says so at the first and then seldom; the count has them all.
TEST(ConnectionBoundTest, CountsWhatIsRefusedAndLogsTheFirst) {
  const int fd = memfd_create("log", MFD_CLOEXEC);
  const server::Logger logger(server::LogLevel::kInfo, fd);
  const Listener listener;
  server::BoundConnections(1, &logger);
  const int64_t before = server::ConnectionsRefused();
  std::vector<int> clients;
  for (int i = 0; i < 6; ++i) clients.push_back(HighConnection(listener.address()));
  const std::vector<int> accepted = listener.AcceptAll();
  ASSERT_EQ(accepted.size(), 1u);
  EXPECT_EQ(server::ConnectionsRefused(), before + 5);
  std::string text(static_cast<size_t>(lseek(fd, 0, SEEK_CUR)), '\0');
  ASSERT_EQ(pread(fd, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  EXPECT_NE(text.find("connections_max"), std::string::npos) << text;
  EXPECT_NE(text.find("\"refused_so_far\":" + std::to_string(before + 1)), std::string::npos)
      << text;

  server::ForgetConnectionLog(&logger);
  clients.push_back(HighConnection(listener.address()));
  EXPECT_TRUE(listener.AcceptAll().empty());
  EXPECT_EQ(lseek(fd, 0, SEEK_CUR), static_cast<off_t>(text.size())) << "nobody logs any more";
  for (const auto* list : {&accepted, &std::as_const(clients)}) {
    for (const int open : *list) close(open);
  }
  server::BoundConnections(Limits().connections_max);
  close(fd);
}

std::chrono::steady_clock::time_point log_time;

// Whoever connects and fails makes gRPC log: that must not fill the disk.
TEST(GrpcLogTest, EachPlaceHasALineAtMostEveryTenSeconds) {
  const int fd = memfd_create("log", MFD_CLOEXEC);
  const server::Logger logger(server::LogLevel::kInfo, fd);
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  server::RouteGrpcLog(&logger, [] { return log_time; });
  const auto here = [](const char* text) {
    gpr_log("src/core/rpc_parts_test_here.cc", 7, GPR_LOG_SEVERITY_ERROR, "%s", text);
  };
  here("first");
  for (int i = 0; i < 100; ++i) here("left out");
  gpr_log("src/core/rpc_parts_test_here.cc", 8, GPR_LOG_SEVERITY_ERROR, "another place");
  log_time += std::chrono::seconds(9);
  here("left out");
  log_time += std::chrono::seconds(1);
  here("second");
  here("left out");
  log_time += std::chrono::seconds(10);
  here("third");
  gpr_log("src/core/rpc_parts_test_here.cc", 9, GPR_LOG_SEVERITY_INFO, "below the level");
  server::RouteGrpcLog(nullptr);
  here("nobody logs any more");

  std::string text(static_cast<size_t>(lseek(fd, 0, SEEK_CUR)), '\0');
  ASSERT_EQ(pread(fd, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  close(fd);
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    // gRPC's threads may log meanwhile.
    if (absl::StrContains(line, "rpc_parts_test_here.cc")) lines.emplace_back(line);
  }
  const struct {
    const char* message;
    int64_t lines;
  } expected[] = {{"first", 1}, {"another place", 1}, {"second", 102}, {"third", 2}};
  ASSERT_EQ(lines.size(), std::size(expected)) << text;
  for (size_t i = 0; i < lines.size(); ++i) {
    SCOPED_TRACE(lines[i]);
    EXPECT_NE(lines[i].find(std::string("\"message\":\"") + expected[i].message + "\""),
              std::string::npos);
    EXPECT_NE(lines[i].find("\"lines\":" + std::to_string(expected[i].lines) + "}"),
              std::string::npos);
  }
}

TEST(ConnectionBoundTest, AProcessWithoutDescriptorsWaitsInsteadOfGivingUp) {
  const Listener listener;
  const int client = HighConnection(listener.address());
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit none = limit;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::vector<int> before = listener.AcceptAll();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_TRUE(before.empty());
  const std::vector<int> after = listener.AcceptAll();
  EXPECT_EQ(after.size(), 1u);
  for (const int fd : after) close(fd);
  close(client);
}

TEST(CallCounterTest, SmallRepliesShareASixteenthAndThenCountForTheirConnection) {
  server::CallCounter counter;
  constexpr int64_t kMax = 1600, kSmall = 10;
  int64_t held = 0;
  while (counter.HoldSmall(kSmall, kMax)) held += kSmall;
  EXPECT_EQ(held, kMax / 16);
  EXPECT_FALSE(counter.HoldSmall(1, kMax));
  // Beyond it, who does not read has a quarter of the bound, and others have theirs.
  int64_t greedy = 0;
  while (counter.Hold("greedy", kSmall, kMax)) greedy += kSmall;
  EXPECT_EQ(greedy, kMax / 4);
  EXPECT_TRUE(counter.Hold("other", kSmall, kMax));
  counter.ReleaseSmall(kSmall);
  EXPECT_TRUE(counter.HoldSmall(kSmall, kMax));
  counter.Release("greedy", greedy);
  EXPECT_TRUE(counter.Hold("greedy", kSmall, kMax));
}

TEST(StatusMapTest, CarriesReasonFieldValueAllowedAndViolation) {
  const grpc::Status status = ToGrpcStatus(
      InvalidArgument(Reason::kDtypeNotAllowed, "x", "F64", "F32, F16", "the dtype is wrong"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const ErrorFacts facts = FactsOf(status);
  EXPECT_EQ(facts.domain, "rlk");
  EXPECT_EQ(facts.reason, "DTYPE_NOT_ALLOWED");
  EXPECT_EQ(facts.metadata, (std::map<std::string, std::string>{
                                {"field", "x"}, {"value", "F64"}, {"allowed", "F32, F16"}}));
  EXPECT_EQ(facts.violated_field, "x");
  EXPECT_FALSE(facts.has_retry_info);
}

// Whoever made the error: a caller finds a field, its value and what is allowed, and the page lists
// what stands there where nothing more precise is known.
TEST(StatusMapTest, EveryReasonNamesFieldValueAndAllowed) {
  std::ifstream file(RLK_SOURCE_DIR "/server/rpc/README.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  for (int i = 0; i < kReasonCount; ++i) {
    const auto reason = static_cast<Reason>(i);
    const std::string name(ReasonName(reason));
    ErrorDetail bare;
    bare.reason = reason;
    const ErrorFacts facts =
        FactsOf(ToGrpcStatus(MakeError(absl::StatusCode::kInvalidArgument, bare, "why")));
    EXPECT_EQ(facts.reason, name);
    ASSERT_EQ(facts.metadata.size(), 3u) << name;
    std::string row = "| " + name + " |";
    for (const char* key : {"field", "value", "allowed"}) {
      const auto found = facts.metadata.find(key);
      ASSERT_NE(found, facts.metadata.end()) << name << " " << key;
      EXPECT_NE(found->second, "") << name << " " << key;
      row += " " + found->second + " |";
    }
    EXPECT_NE(page.find(row), std::string::npos) << "server/rpc/README.md lacks: " << row;
    EXPECT_EQ(facts.violated_field, facts.metadata.at("field")) << name;

    const ErrorDetail precise = {reason, "f", "v", "a"};
    const ErrorFacts kept =
        FactsOf(ToGrpcStatus(MakeError(absl::StatusCode::kUnavailable, precise, "why")));
    EXPECT_EQ(kept.metadata, (std::map<std::string, std::string>{
                                 {"field", "f"}, {"value", "v"}, {"allowed", "a"}}));
    EXPECT_EQ(kept.violated_field, "");
  }
}

TEST(StatusMapTest, RetryInfoOnlyWhereARetryHelps) {
  ErrorDetail detail;
  detail.reason = Reason::kQueueFull;
  detail.retry_after_ms = 1250;
  const grpc::Status status =
      ToGrpcStatus(MakeError(absl::StatusCode::kResourceExhausted, detail, "full"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(FactsOf(status).retry_seconds, 1.25);
  EXPECT_EQ(FactsOf(status).violated_field, "");
}

TEST(StatusMapTest, EveryCodeKeepsItsNumberAndGetsAReason) {
  for (int code = 1; code <= 16; ++code) {
    const grpc::Status status =
        ToGrpcStatus(absl::Status(static_cast<absl::StatusCode>(code), "no payload"));
    EXPECT_EQ(static_cast<int>(status.error_code()), code);
    EXPECT_EQ(FactsOf(status).reason, "INTERNAL");
  }
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
}

TEST(StatusMapTest, HugeAndUnprintableTextsStaySmallAndClean) {
  const std::string huge(100000, '\xff');
  const grpc::Status status =
      ToGrpcStatus(InvalidArgument(Reason::kUnknownContract, huge, huge, huge, huge));
  EXPECT_LT(status.error_details().size(), server::kStatusDetailsBytesMax);
  EXPECT_LT(status.error_message().size(), 1024u);
  EXPECT_EQ(FactsOf(status).reason, "UNKNOWN_CONTRACT");
}

TEST(TraceContextTest, TakesWhatTheRecommendationAllows) {
  const std::string trace = "0af7651916cd43dd8448eb211c80319c";
  const std::string good = "00-" + trace + "-b7ad6b7169203331-01";
  const struct {
    std::string header;
    bool valid;
  } cases[] = {
      {good, true},
      {"cc-" + trace + "-b7ad6b7169203331-01", true},
      {"cc-" + trace + "-b7ad6b7169203331-01-what", true},
      {good + "-what", false},
      {good + "x", false},
      {"ff-" + trace + "-b7ad6b7169203331-01", false},
      {"00-" + std::string(32, '0') + "-b7ad6b7169203331-01", false},
      {"00-" + trace + "-0000000000000000-01", false},
      {"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", false},
      {"", false},
      {good.substr(0, 54), false},
      {std::string(55, '-'), false},
  };
  for (const auto& c : cases) {
    const auto parsed = ParseTraceparent(c.header);
    EXPECT_EQ(parsed.has_value(), c.valid) << c.header;
    if (parsed) {
      EXPECT_EQ(*parsed, trace);
    }
  }
}

TEST(ProvenanceTest, IdChangesWithEachFactAboutTheGpus) {
  const auto id = [](const std::vector<DeviceInfo>& devices) {
    return server::MakeProvenance({}, devices, server::ToleranceContract::Builtin()).id;
  };
  DeviceInfo host;
  host.name = "host";
  DeviceInfo gpu;
  gpu.kind = DeviceKind::kCuda;
  gpu.name = "A GPU";
  gpu.compute_capability = 90;
  gpu.multiprocessors = 132;
  std::set<std::string> ids = {id({host}), id({host, gpu}), id({host, gpu, gpu})};
  DeviceInfo other = gpu;
  other.name = "Another";
  ids.insert(id({host, other}));
  other = gpu;
  other.compute_capability = 100;
  ids.insert(id({host, other}));
  other = gpu;
  other.multiprocessors = 114;
  ids.insert(id({host, other}));
  EXPECT_EQ(ids.size(), 6u);
  // Which of several equal GPUs it is does not change the arithmetic's record.
  other = gpu;
  other.uuid = "GPU-1";
  EXPECT_EQ(id({host, other}), id({host, gpu}));
  EXPECT_EQ(id({gpu, host}), id({host, gpu}));
}

// Work that takes long keeps nobody else's from being done.
TEST(SideWorker, WorkGoesOnBesideWorkThatTakesLong) {
  std::promise<void> others_done;
  std::atomic<int> done{0};
  server::SideWorker worker;
  worker.Post([&] {
    others_done.get_future().wait();
    ++done;
  });
  for (int i = 0; i < 10; ++i) worker.Post([&done] { ++done; });
  worker.Post([&others_done] { others_done.set_value(); });
  worker.Finish();
  EXPECT_EQ(done, 11);
}

}  // namespace
}  // namespace rlk::test
