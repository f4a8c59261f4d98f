// Every fault of a device: the status, reason, metric and log line that it ends in, and what the
// next call gets. And the end of the process whose last device is lost.
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <sstream>
#include <thread>

#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "kernels/core/status.h"
#include "tests/integration/fixture.h"
#include "tests/integration/server_process.h"
#include "tests/support/fake_gpu.h"

namespace rlk::test {
namespace {

using rlk::v1::ActivationService;
using rlk::v1::FinalLogitSoftcapForwardResponse;

constexpr char kTraceId[] = "0af7651916cd43dd8448eb211c80319c";
constexpr char kTransient[] = "rlk_device_errors_total{class=\"transient\",device=\"cuda:0\"}";
constexpr char kSticky[] = "rlk_device_errors_total{class=\"sticky\",device=\"cuda:0\"}";
constexpr char kMemory[] = "rlk_admission_rejections_total{reason=\"DEVICE_MEMORY_EXHAUSTED\"}";

struct FaultCase {
  const char* name;
  FakePoint point;
  bool sticky;
  grpc::StatusCode code;
  Reason reason;
  const char* metric;
  const char* level;
};

using grpc::StatusCode;
const FaultCase kFaults[] = {
    {"Allocation", FakePoint::kBegin, false, StatusCode::RESOURCE_EXHAUSTED,
     Reason::kDeviceMemoryExhausted, kMemory, "warning"},
    {"OutputAllocation", FakePoint::kOutput, false, StatusCode::RESOURCE_EXHAUSTED,
     Reason::kDeviceMemoryExhausted, kMemory, "warning"},
    {"CopyIn", FakePoint::kStageIn, false, StatusCode::INTERNAL, Reason::kInternal, kTransient,
     "error"},
    {"Launch", FakePoint::kLaunch, false, StatusCode::INTERNAL, Reason::kInternal, kTransient,
     "error"},
    {"Wait", FakePoint::kDone, false, StatusCode::INTERNAL, Reason::kInternal, kTransient, "error"},
    {"CopyOut", FakePoint::kStageOut, false, StatusCode::INTERNAL, Reason::kInternal, kTransient,
     "error"},
    {"StickyAllocation", FakePoint::kBegin, true, StatusCode::UNAVAILABLE, Reason::kDeviceLost,
     kSticky, "warning"},
    {"StickyOutputAllocation", FakePoint::kOutput, true, StatusCode::UNAVAILABLE,
     Reason::kDeviceLost, kSticky, "warning"},
    {"StickyCopyIn", FakePoint::kStageIn, true, StatusCode::UNAVAILABLE, Reason::kDeviceLost,
     kSticky, "warning"},
    {"StickyLaunch", FakePoint::kLaunch, true, StatusCode::UNAVAILABLE, Reason::kDeviceLost,
     kSticky, "warning"},
    {"StickyWait", FakePoint::kDone, true, StatusCode::UNAVAILABLE, Reason::kDeviceLost, kSticky,
     "warning"},
    {"StickyCopyOut", FakePoint::kStageOut, true, StatusCode::UNAVAILABLE, Reason::kDeviceLost,
     kSticky, "warning"},
};

grpc::Status Forward(const std::string& target, const rlk::v1::CallOptions& options,
                     FinalLogitSoftcapForwardResponse& response) {
  const auto stub = ActivationService::NewStub(DefaultChannel(target));
  grpc::ClientContext context;
  context.AddMetadata("traceparent", std::string("00-") + kTraceId + "-b7ad6b7169203331-01");
  rlk::v1::FinalLogitSoftcapForwardRequest request = ForwardRequest();
  *request.mutable_options() = options;
  return stub->FinalLogitSoftcapForward(&context, request, &response);
}

rlk::v1::CallOptions On(const std::string& backend, const std::string& uuid = "") {
  rlk::v1::CallOptions options;
  options.set_backend(backend);
  options.set_device_uuid(uuid);
  return options;
}

std::string TextOf(int fd) {
  std::string text;
  char buffer[4096];
  off_t offset = 0;
  for (ssize_t got; (got = pread(fd, buffer, sizeof(buffer), offset)) > 0; offset += got) {
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

// The lines of the log with the trace id of these tests.
std::vector<google::protobuf::Struct> TracedLines(const std::string& log) {
  std::vector<google::protobuf::Struct> found;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    google::protobuf::Struct entry;
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(line, &entry).ok()) << line;
    const auto trace = entry.fields().find("trace_id");
    if (trace != entry.fields().end() && trace->second.string_value() == kTraceId) {
      found.push_back(entry);
    }
  }
  return found;
}

void ExpectLogged(const std::string& log, const char* level, Reason reason) {
  const auto lines = TracedLines(log);
  ASSERT_EQ(lines.size(), 1u) << log;
  EXPECT_EQ(lines[0].fields().at("level").string_value(), level);
  EXPECT_EQ(lines[0].fields().at("reason").string_value(), ReasonName(reason));
  EXPECT_FALSE(lines[0].fields().at("error").string_value().empty());
}

class FaultTest : public testing::Test {
 protected:
  void StartServer(server::Options options = TestOptions()) {
    server::ServerHooks hooks;
    hooks.devices = MakeFakeGpus({first_, second_});
    hooks.fill_registry = FillFakeGpuRegistry;
    log_ = memfd_create("log", MFD_CLOEXEC);
    server_ =
        std::make_unique<TestServer>(options, std::move(hooks), server::LogLevel::kInfo, log_);
    ASSERT_TRUE(Forward(server_->tcp(), On("cpu"), expected_).ok());
  }

  // What the device at fault left behind, and a call on a healthy one.
  void ExpectRightBits(const rlk::v1::CallOptions& options) {
    FinalLogitSoftcapForwardResponse response;
    const grpc::Status status = Forward(server_->tcp(), options, response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.report().backend(), "cuda");
    EXPECT_EQ(response.y().data(), expected_.y().data());
  }

  void TearDown() override {
    first_->Release();
    server_.reset();
    if (log_ >= 0) close(log_);
  }

  const std::shared_ptr<FakeControl> first_ = std::make_shared<FakeControl>();
  const std::shared_ptr<FakeControl> second_ = std::make_shared<FakeControl>();
  int log_ = -1;
  std::unique_ptr<TestServer> server_;
  FinalLogitSoftcapForwardResponse expected_;
};

class FaultAt : public FaultTest, public testing::WithParamInterface<FaultCase> {};

TEST_P(FaultAt, HasItsStatusReasonMetricAndLogLine) {
  const FaultCase& c = GetParam();
  StartServer();
  // Not at the first arrival: the n-th, with calls that succeed before it.
  for (int i = 0; i < 3; ++i) ExpectRightBits(On("cuda", "fake-0"));
  first_->FailAt(c.point, first_->arrivals(c.point) + 1, c.sticky);
  FinalLogitSoftcapForwardResponse response;
  const grpc::Status status = Forward(server_->tcp(), On("cuda", "fake-0"), response);
  EXPECT_EQ(status.error_code(), c.code) << status.error_message();
  EXPECT_EQ(FactsOf(status).reason, ReasonName(c.reason));
  EXPECT_EQ(FactsOf(status).has_retry_info, c.reason == Reason::kDeviceMemoryExhausted);
  const std::string metrics = Scrape(server_->metrics());
  for (const char* series : {kTransient, kSticky, kMemory}) {
    EXPECT_EQ(SeriesValue(metrics, series), series == c.metric ? 1 : 0) << series;
  }
  ExpectLogged(TextOf(log_), c.level, c.reason);
  ExpectRightBits(On("cuda", c.sticky ? "fake-1" : "fake-0"));
  ExpectRightBits(On("cuda"));
  EXPECT_EQ(SeriesValue(Scrape(server_->metrics()), "rlk_inflight_requests"), 0);
}

INSTANTIATE_TEST_SUITE_P(Points, FaultAt, testing::ValuesIn(kFaults),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(FaultTest, AKernelThatHangsCostsItsDevice) {
  server::Options options = TestOptions();
  // Long enough that a kernel that does not hang is through, however busy the machine is.
  options.watchdog_ms = 2000;
  StartServer(options);
  first_->Hold();
  FinalLogitSoftcapForwardResponse response;
  const grpc::Status status = Forward(server_->tcp(), On("cuda", "fake-0"), response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(FactsOf(status).reason, ReasonName(Reason::kDeviceLost));
  EXPECT_NE(status.error_message().find("watchdog_ms"), std::string::npos);
  EXPECT_EQ(SeriesValue(Scrape(server_->metrics()), kSticky), 1);
  ExpectLogged(TextOf(log_), "warning", Reason::kDeviceLost);
  ExpectRightBits(On("cuda"));
}

// The program itself: it leaves the rotation, says why, and ends with its own code.
TEST(FaultProcessTest, TheLossOfTheLastDeviceEndsTheProcess) {
  const struct {
    const char* what;
    std::string command;
    const char* watchdog_ms;
  } cases[] = {
      {"a sticky error",
       "fail " + std::to_string(static_cast<int>(FakePoint::kLaunch)) + " 1 sticky", "600000"},
      // The call before, which does not hang, is watched too.
      {"a kernel that hangs", "hold", "2000"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    ServerProcess process({"--listen=127.0.0.1:0", "--metrics=127.0.0.1:0",
                           std::string("--watchdog-ms=") + c.watchdog_ms,
                           "--selftest-interval-seconds=0", "--drain-seconds=5"},
                          ServerProcess::Program::kFaultyServer);
    const std::string target = process.listen();
    const auto channel = DefaultChannel(target);
    // A connection that is there before, so that the answer shows the server's state alone.
    EXPECT_EQ(CallRaw(channel, "/grpc.health.v1.Health/Check", "").bytes, "\x08\x01");
    FinalLogitSoftcapForwardResponse response;
    ASSERT_TRUE(Forward(target, On("cuda"), response).ok());
    process.Command(c.command);
    const grpc::Status status = Forward(target, On("cuda"), response);
    const auto answered = std::chrono::steady_clock::now();
    EXPECT_EQ(FactsOf(status).reason, ReasonName(Reason::kDeviceLost)) << status.error_message();
    // Health turns before the call that met the fault is answered: no waiting here. On a machine
    // that is busy enough the process may be gone by now.
    const RawReply health = CallRaw(channel, "/grpc.health.v1.Health/Check", "");
    const std::chrono::duration<double, std::milli> took =
        std::chrono::steady_clock::now() - answered;
    EXPECT_TRUE(!health.status.ok() || health.bytes == "\x08\x02");
    EXPECT_EQ(process.Wait(), 3);
    printf("%s: %s %.1f ms after the answer\n", c.what,
           health.status.ok() ? "NOT_SERVING was read" : "the server had ended", took.count());
    const std::string log = process.Stderr();
    EXPECT_NE(log.find("no healthy device is left"), std::string::npos) << log;
    EXPECT_NE(log.find(kTraceId), std::string::npos) << log;
  }
}

// No self-test, and nobody calls: still health and the exit code tell it.
TEST(FaultProcessTest, AnErrorThatNoCallMeetsEndsTheProcessToo) {
  ServerProcess process({"--listen=127.0.0.1:0", "--metrics=", "--watchdog-ms=600000",
                         "--selftest-interval-seconds=0"},
                        ServerProcess::Program::kFaultyServer);
  ASSERT_FALSE(process.first_line().empty());
  process.Command("lose");
  EXPECT_EQ(process.Wait(), 3);
  EXPECT_NE(process.Stderr().find("no healthy device is left"), std::string::npos);
}

// Whoever drains it waits no longer for a server whose devices are gone, and learns why it ended.
TEST(FaultProcessTest, ALossDuringTheDelayOfADrainEndsTheProcessToo) {
  ServerProcess process({"--listen=127.0.0.1:0", "--metrics=", "--watchdog-ms=600000",
                         "--selftest-interval-seconds=0", "--drain-delay-seconds=86400"},
                        ServerProcess::Program::kFaultyServer);
  const std::string target = process.listen();
  FinalLogitSoftcapForwardResponse response;
  ASSERT_TRUE(Forward(target, On("cuda"), response).ok());
  process.Signal(SIGTERM);
  while (process.Stderr().find("draining") == std::string::npos) std::this_thread::yield();
  process.Command("fail " + std::to_string(static_cast<int>(FakePoint::kLaunch)) + " 1 sticky");
  const grpc::Status status = Forward(target, On("cuda"), response);
  EXPECT_EQ(FactsOf(status).reason, ReasonName(Reason::kDeviceLost)) << status.error_message();
  EXPECT_EQ(process.Wait(), 3);
}

}  // namespace
}  // namespace rlk::test
