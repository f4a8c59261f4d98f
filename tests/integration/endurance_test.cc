// Many calls: with deadlines that pass and callers that leave, and for the memory they leave
// behind.
#include <signal.h>

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "tests/integration/pipeline.h"
#include "tests/integration/server_process.h"
#include "tests/support/fake_gpu.h"

namespace rlk::test {
namespace {

using rlk::v1::ActivationService;
using std::chrono::microseconds;

constexpr uint64_t kSeed = 20240417;

double Requests(const std::string& metrics, const std::string& code) {
  return SeriesValue(metrics, "rlk_requests_total{code=\"" + code +
                                  "\",direction=\"forward\",operator=\"final_logit_softcap\"}");
}

double Cancelled(const std::string& metrics, const std::string& stage) {
  return SeriesValue(metrics, "rlk_cancelled_total{stage=\"" + stage + "\"}");
}

// Deadlines of 1 to 5 ms and random cancellations; returns how calls ended, by status code.
std::map<int, int64_t> SendImpatientCalls(const TestServer& server, int64_t count) {
  const auto first = ActivationService::NewStub(DefaultChannel(server.tcp()));
  const auto second = ActivationService::NewStub(DefaultChannel(server.tcp()));
  const auto small = ForwardRequest(), large = ForwardOfSize(60000);
  rlk::v1::FinalLogitSoftcapForwardResponse expected[2];
  for (int i = 0; i < 2; ++i) {
    grpc::ClientContext context;
    EXPECT_TRUE(first->FinalLogitSoftcapForward(&context, i ? large : small, &expected[i]).ok());
  }
  std::mutex mutex;
  std::map<int, int64_t> ends;
  std::mt19937_64 random(kSeed);
  std::deque<std::shared_ptr<FlyingCall>> recent;
  Pipeline calls(16);
  for (int64_t i = 0; i < count; ++i) {
    const bool is_large = random() % 16 == 0;
    auto call = calls.Send(random() % 2 ? *first : *second, is_large ? large : small,
                           microseconds(1000 + random() % 4000),
                           [&, is_large](const FlyingCall& ended, const grpc::Status& status) {
                             const std::lock_guard<std::mutex> lock(mutex);
                             ++ends[status.error_code()];
                             if (!status.ok()) return;
                             EXPECT_EQ(ended.response.y().data(), expected[is_large].y().data());
                           });
    recent.push_back(std::move(call));
    if (recent.size() > 32) recent.pop_front();
    if (random() % 4 == 0) recent[random() % recent.size()]->context.TryCancel();
  }
  calls.Wait();
  return ends;
}

// A call that its caller gave up may reach the server later, so nothing is said of the server here.
void ExpectEnds(const std::map<int, int64_t>& ends, int64_t count) {
  int64_t sum = 0;
  for (const auto& [code, number] : ends) {
    sum += number;
    printf("code %d: %lld calls\n", code, static_cast<long long>(number));
    // The window counts the calls that callers wait for: on a slow machine those that were given
    // up can fill the queue.
    EXPECT_TRUE(code == grpc::StatusCode::OK || code == grpc::StatusCode::CANCELLED ||
                code == grpc::StatusCode::DEADLINE_EXCEEDED ||
                code == grpc::StatusCode::RESOURCE_EXHAUSTED)
        << code;
  }
  EXPECT_EQ(sum, count);
}

// Scrapes until `settled` holds; of counts that do not agree it never does.
template <typename Settled>
std::string AwaitMetrics(const TestServer& server, Settled settled) {
  while (true) {
    std::string metrics = Scrape(server.metrics());
    if (SeriesValue(metrics, "rlk_inflight_requests") == 0 && settled(metrics)) return metrics;
    std::this_thread::yield();
  }
}

void PrintStages(const std::string& metrics) {
  printf("given up: queue %.0f, stage_in %.0f, launch %.0f, stage_out %.0f; OK %.0f\n",
         Cancelled(metrics, "queue"), Cancelled(metrics, "stage_in"), Cancelled(metrics, "launch"),
         Cancelled(metrics, "stage_out"), Requests(metrics, "OK"));
}

TEST(EnduranceTest, ImpatientCallersOnTheHost) {
  const int64_t count = Count(2000, 100000);
  TestServer server;
  ExpectEnds(SendImpatientCalls(server, count), count);
  PrintStages(AwaitMetrics(server, [](const std::string& metrics) {
    return SeriesValue(metrics, "rlk_queue_depth{device=\"cpu:0\"}") == 0 &&
           SeriesValue(metrics, "rlk_queue_bytes{device=\"cpu:0\"}") == 0;
  }));
}

double GivenUpBeforeLaunch(const std::string& metrics) {
  return Cancelled(metrics, "queue") + Cancelled(metrics, "stage_in") +
         Cancelled(metrics, "launch");
}

// The launches are counted: one for each call that was answered or given up after it, none for a
// call that was given up before. A launch too many is never made up for.
TEST(EnduranceTest, NoKernelRunsForACallerWhoIsGone) {
  const int64_t count = Count(2000, 100000);
  const auto control = std::make_shared<FakeControl>();
  server::ServerHooks hooks;
  hooks.devices = MakeFakeGpus({control});
  hooks.fill_registry = FillFakeGpuRegistry;
  TestServer server(TestOptions(), std::move(hooks));
  ExpectEnds(SendImpatientCalls(server, count), count);
  // On a fast machine all may have been launched in time: a device that stands still is not.
  while (GivenUpBeforeLaunch(Scrape(server.metrics())) == 0) {
    control->Hold();
    const auto stub = ActivationService::NewStub(DefaultChannel(server.tcp()));
    Pipeline calls(64);
    for (int i = 0; i < 64; ++i) {
      calls.Send(*stub, ForwardRequest(), microseconds(5000),
                 [](const FlyingCall&, const grpc::Status& end) { EXPECT_FALSE(end.ok()); });
    }
    calls.Wait();
    control->Release();
  }
  PrintStages(AwaitMetrics(server, [&control](const std::string& metrics) {
    const double after = Cancelled(metrics, "stage_out");
    return static_cast<double>(control->arrivals(FakePoint::kLaunch)) ==
               Requests(metrics, "OK") + after &&
           Requests(metrics, "CANCELLED") + Requests(metrics, "DEADLINE_EXCEEDED") ==
               GivenUpBeforeLaunch(metrics) + after;
  }));
}

// The self-test holds megabytes while it runs. In its first round the allocator maps them, in the
// second it takes them from an arena, which keeps them: what calls leave behind shows after that.
void AwaitSelftestRounds(const ServerProcess& process, int rounds) {
  constexpr int kMethods = 3;  // of the operator whose tensors are the largest
  const std::string series =
      "rlk_selftest_total{operator=\"adaln_projection_3mod\",result=\"pass\"}";
  while (SeriesValue(Scrape(process.metrics()), series) < rounds * kMethods) {
    std::this_thread::yield();
  }
}

TEST(EnduranceTest, CallsLeaveNoMemoryBehind) {
  const int64_t warm = Count(2000, 100000), all = Count(10000, 1000000);
  // With few calls the allocator is still filling its arenas.
  const int64_t growth_bytes_max = Count(8 << 20, 1 << 20);
  ServerProcess process({"--listen=127.0.0.1:0", "--metrics=127.0.0.1:0",
                         "--selftest-interval-seconds=1", "--threads=1"});
  const auto stub = ActivationService::NewStub(DefaultChannel(process.listen()));
  const auto small = ForwardRequest(), large = ForwardOfSize(3000);
  std::atomic<int64_t> failed = 0;
  int64_t rss_warm = 0;
  Pipeline calls(16);
  for (int64_t i = 1; i <= all; ++i) {
    calls.Send(*stub, i % 16 == 0 ? large : small, {},
               [&](const FlyingCall&, const grpc::Status& status) { failed += !status.ok(); });
    if (i == warm) {
      calls.Wait();
      AwaitSelftestRounds(process, 2);
      rss_warm = process.rss_bytes();
    }
  }
  calls.Wait();
  const int64_t rss = process.rss_bytes();
  printf("RSS %lld KiB after %lld calls, %lld KiB after %lld\n",
         static_cast<long long>(rss_warm >> 10), static_cast<long long>(warm),
         static_cast<long long>(rss >> 10), static_cast<long long>(all));
  EXPECT_EQ(failed, 0);
  EXPECT_LE(rss - rss_warm, growth_bytes_max);
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
}

}  // namespace
}  // namespace rlk::test
