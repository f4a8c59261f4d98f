#include "server/selftest.h"

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "server/engine/host_device.h"
#include "tests/integration/fixture.h"
#include "tests/support/fake_device.h"
#include "tests/support/op_call.h"

namespace rlk::test {
namespace {

TEST(SelftestTest, PassesAndDoesNotCountAsRequests) {
  server::Options options = TestOptions();
  options.selftest_interval_seconds = 3600;
  TestServer server(options);
  const std::string pass = "rlk_selftest_total{operator=\"final_logit_softcap\",result=\"pass\"}";
  // Forward and Backward on the cpu backend.
  while (SeriesValue(Scrape(server.metrics()), pass) < 2) std::this_thread::yield();
  const std::string text = Scrape(server.metrics());
  for (const char* result : {"mismatch", "error"}) {
    EXPECT_EQ(SeriesValue(text, "rlk_selftest_total{operator=\"final_logit_softcap\",result=\"" +
                                    std::string(result) + "\"}"),
              0);
  }
  EXPECT_EQ(SeriesValue(text,
                        "rlk_requests_total{code=\"OK\",direction=\"forward\",operator=\"final_"
                        "logit_softcap\"}"),
            0);
}

TEST(SelftestTest, EveryMethodPassesOnTheCpu) {
  std::vector<std::unique_ptr<server::Device>> devices;
  devices.push_back(server::MakeHostDevice({.threads = 2}));
  server::Engine engine(OpRegistry(), {}, server::ToleranceContract::Builtin(), std::move(devices),
                        nullptr, nullptr);
  ASSERT_TRUE(engine.Start().ok());
  const std::vector<server::SelftestOutcome> outcomes = server::RunSelftest(engine);
  EXPECT_EQ(outcomes.size(), OpRegistry().methods().size());
  for (const server::SelftestOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.result, server::SelftestResult::kPass)
        << outcome.method << ": " << outcome.detail;
  }
}

TEST(SelftestTest, NoticesOneWrongBit) {
  const auto control = std::make_shared<FakeControl>();
  control->FlipBitAt(1);
  server::ServerHooks hooks;
  FakeDeviceOptions fake;
  fake.kind = DeviceKind::kHost;
  fake.compute_capability = 0;
  hooks.devices.push_back(MakeFakeDevice(control, fake));
  server::Options options = TestOptions();
  options.selftest_interval_seconds = 3600;
  TestServer server(options, std::move(hooks));
  const std::string mismatch =
      "rlk_selftest_total{operator=\"final_logit_softcap\",result=\"mismatch\"}";
  const std::string pass = "rlk_selftest_total{operator=\"final_logit_softcap\",result=\"pass\"}";
  while (SeriesValue(Scrape(server.metrics()), pass) < 1) std::this_thread::yield();
  EXPECT_EQ(SeriesValue(Scrape(server.metrics()), mismatch), 1);
}

}  // namespace
}  // namespace rlk::test
