// SIGTERM while thousands of calls are in flight: the device is held, so that all of them are when
// the signal comes.
#include <signal.h>

#include <atomic>
#include <thread>

#include "kernels/core/status.h"
#include "tests/integration/pipeline.h"
#include "tests/integration/server_process.h"

namespace rlk::test {
namespace {

using rlk::v1::ActivationService;

TEST(DrainTest, TerminationFailsNoneOfTheCallsInFlight) {
  const int64_t count = Count(500, 10000);
  ServerProcess process(
      {"--listen=127.0.0.1:0", "--metrics=127.0.0.1:0", "--selftest-interval-seconds=0",
       "--queue-calls-max=20000", "--streams-per-connection-max=20000", "--watchdog-ms=600000",
       "--drain-delay-seconds=1", "--drain-seconds=600"},
      ServerProcess::Program::kFaultyServer);
  const auto channel = DefaultChannel(process.listen());
  const auto stub = ActivationService::NewStub(channel);
  const rlk::v1::FinalLogitSoftcapForwardRequest request = ForwardRequest();
  rlk::v1::FinalLogitSoftcapForwardResponse expected;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(stub->FinalLogitSoftcapForward(&context, request, &expected).ok());
  }

  process.Command("hold");
  std::atomic<int64_t> right = 0, wrong = 0;
  Pipeline calls(count);
  for (int64_t i = 0; i < count; ++i) {
    calls.Send(*stub, request, {}, [&](const FlyingCall& call, const grpc::Status& status) {
      const bool good = status.ok() && call.response.y().data() == expected.y().data();
      ++(good ? right : wrong);
    });
  }
  while (SeriesValue(Scrape(process.metrics()), "rlk_inflight_requests") <
         static_cast<double>(count)) {
    std::this_thread::yield();
  }
  process.Signal(SIGTERM);

  // Probes: health is asked before each call is made. It turns first, and calls are refused a delay
  // later: one that is refused sooner after health had said SERVING shows that it did not.
  constexpr std::chrono::seconds kDelay{1};
  std::atomic<int64_t> refused = 0, other = 0, early = 0;
  int64_t probes = 0;
  {
    Pipeline late(1 << 20);
    while (refused == 0) {
      const auto asked = std::chrono::steady_clock::now();
      const std::string health = CallRaw(channel, "/grpc.health.v1.Health/Check", "").bytes;
      ++probes;
      late.Send(*stub, request, {}, [&, asked, health](const FlyingCall&, const grpc::Status& end) {
        // A probe that came before the end of the delay is a call in flight like the others.
        if (end.ok()) return;
        const bool draining = end.error_code() == grpc::StatusCode::UNAVAILABLE &&
                              FactsOf(end).reason == ReasonName(Reason::kDraining);
        const auto took = std::chrono::steady_clock::now() - asked;
        early += health != "\x08\x02" && took < kDelay;
        ++(draining ? refused : other);
      });
    }
    EXPECT_EQ(CallRaw(channel, "/grpc.health.v1.Health/Check", "").bytes, "\x08\x02");
    // All have arrived, so that none meets the end of the transport.
    while (true) {
      const std::string text = Scrape(process.metrics());
      const double arrived =
          SeriesValue(text, "rlk_inflight_requests") +
          SeriesValue(text, "rlk_admission_rejections_total{reason=\"DRAINING\"}");
      if (arrived == static_cast<double>(count + probes)) break;
      std::this_thread::yield();
    }
    EXPECT_EQ(right + wrong, 0) << "all calls were still held when the first was refused";
    process.Command("release");
    calls.Wait();
  }
  EXPECT_EQ(right, count);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(other, 0);
  EXPECT_EQ(early, 0);
  EXPECT_EQ(process.Wait(), 0);
  printf("%lld calls in flight at SIGTERM: %lld right, %lld failed; %lld probes, %lld refused\n",
         static_cast<long long>(count), static_cast<long long>(right.load()),
         static_cast<long long>(wrong.load()), static_cast<long long>(probes),
         static_cast<long long>(refused.load()));
}

}  // namespace
}  // namespace rlk::test
