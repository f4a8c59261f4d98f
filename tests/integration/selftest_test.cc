#include "server/selftest.h"

#include <thread>

#include "tests/integration/fixture.h"
#include "tests/support/fake_device.h"

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
