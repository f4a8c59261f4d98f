// What happens when a device dies or hangs.
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/core/status.h"
#include "tests/unit/engine/engine_harness.h"

namespace rlk::server {
namespace {

using test::EngineHarness;
using test::Execute;
using test::FakePoint;
using test::Pending;
using test::ReasonOf;
using test::Submit;

class DeviceLoss : public testing::Test, protected EngineHarness {
 protected:
  void ExpectLost(const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_EQ(ReasonOf(status), Reason::kDeviceLost);
  }
};

class DeviceLossAt : public DeviceLoss, public testing::WithParamInterface<FakePoint> {};

TEST_P(DeviceLossAt, EveryCallEndsAndTheServerStopsServing) {
  options.lanes = 2;
  Start();
  control->Hold();
  const Pending waiting_on_device = Submit(*engine, Scale());
  control->AwaitArrivals(FakePoint::kLaunch, 1);
  control->FailAt(GetParam(), control->arrivals(GetParam()) + 1, /*sticky=*/true);
  std::vector<Pending> pending;
  for (int i = 0; i < 5; ++i) {
    Call call = Scale();
    call.options.digest_tensors = GetParam() == FakePoint::kDigest;
    pending.push_back(Submit(*engine, std::move(call)));
  }
  control->Release();
  // The first may have been done before the fault; the one that met it was not.
  waiting_on_device.Wait();
  int64_t failed = 0;
  for (const Pending& call : pending) {
    if (call.Wait().ok()) continue;
    ExpectLost(call.Wait().status());
    ++failed;
  }
  EXPECT_GE(failed, 1);
  EXPECT_FALSE(engine->serving());
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].uuid, "fake-0");
  EXPECT_EQ(observer.device_errors, 1);

  // No silent move to the CPU; a call that asks for it still runs.
  ExpectLost(Execute(*engine, Scale()).status());
  Call call = Scale();
  call.options.device_uuid = "fake-0";
  ExpectLost(Execute(*engine, std::move(call)).status());
  call = Scale();
  call.options.backend = "cpu";
  EXPECT_TRUE(Execute(*engine, std::move(call)).ok());

  EXPECT_TRUE(engine->Drain(std::chrono::steady_clock::time_point::max()));
  EXPECT_EQ(observer.in_flight, 0);
  engine.reset();
  // Nothing of a dead context is freed.
  EXPECT_EQ(control->lanes_destroyed(), 0);
}

INSTANTIATE_TEST_SUITE_P(Points, DeviceLossAt,
                         testing::Values(FakePoint::kBegin, FakePoint::kStageIn, FakePoint::kOutput,
                                         FakePoint::kLaunch, FakePoint::kStageOut, FakePoint::kDone,
                                         FakePoint::kDigest));

TEST_F(DeviceLoss, AnotherDeviceOfTheKindGoesOn) {
  const auto second = std::make_shared<test::FakeControl>();
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(test::MakeFakeDevice(control));
  devices.push_back(test::MakeFakeDevice(second, {.ordinal = 1, .uuid = "fake-1"}));
  StartWith(std::move(devices));
  control->FailAt(FakePoint::kLaunch, 1, /*sticky=*/true);
  Call call = Scale();
  call.options.device_uuid = "fake-0";
  ExpectLost(Execute(*engine, std::move(call)).status());
  EXPECT_TRUE(engine->serving());
  EXPECT_TRUE(lost.empty());
  const auto result = Execute(*engine, Scale());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->report.device.uuid, "fake-1");
}

TEST_F(DeviceLoss, TheWatchdogGivesUpAKernelThatHangs) {
  options.watchdog_ms = 20;
  Start();
  control->Hold();
  const Pending hanging = Submit(*engine, Scale());
  ExpectLost(hanging.Wait().status());
  EXPECT_THAT(std::string(hanging.Wait().status().message()), testing::HasSubstr("watchdog_ms"));
  EXPECT_FALSE(engine->serving());
  EXPECT_TRUE(engine->Drain(std::chrono::steady_clock::time_point::max()));
  EXPECT_EQ(lost.size(), 1u);
  engine.reset();
  EXPECT_EQ(control->lanes_destroyed(), 0);
}

TEST_F(DeviceLoss, TheWatchdogGivesUpALaunchThatDoesNotReturn) {
  options.watchdog_ms = 20;
  Start();
  control->HoldInLaunch();
  std::vector<Pending> pending;
  for (int i = 0; i < 3; ++i) pending.push_back(Submit(*engine, Scale()));
  for (const Pending& call : pending) ExpectLost(call.Wait().status());
  EXPECT_FALSE(engine->serving());
  // The thread is still in the device: the engine goes without it.
  engine.reset();
  control->Release();
}

TEST_F(DeviceLoss, AnErrorThatNoCallMetCostsTheDeviceToo) {
  for (const int64_t watchdog_ms : {0, 600000}) {
    lost.clear();
    control = std::make_shared<test::FakeControl>();
    options.watchdog_ms = watchdog_ms;
    Start();
    EXPECT_TRUE(Execute(*engine, Scale()).ok());
    const int64_t errors = observer.device_errors;
    control->Lose();
    while (engine->serving()) std::this_thread::yield();
    ExpectLost(Execute(*engine, Scale()).status());
    engine.reset();
    EXPECT_EQ(lost.size(), 1u);
    EXPECT_EQ(observer.device_errors, errors + 1);
  }
}

TEST_F(DeviceLoss, TheHostIsNotWatched) {
  options.watchdog_ms = 1;
  StartWith([] {
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(MakeHostDevice({.threads = 1}));
    return devices;
  }());
  MethodDecl decl = registry->Find("toy.scale")->decl;
  for (Variant& variant : decl.variants) {
    variant.launch = [](const KernelArgs&) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
      while (std::chrono::steady_clock::now() < end) {
      }
      return absl::OkStatus();
    };
  }
  const Method slow{decl, registry->Find("toy.scale")->signature};
  Call call = Scale();
  call.method = &slow;
  EXPECT_TRUE(Execute(*engine, std::move(call)).ok());
  EXPECT_TRUE(engine->serving());
}

TEST_F(DeviceLoss, StartFailsWithTheDevicesError) {
  class Broken : public Device {
   public:
    const DeviceInfo& info() const override { return info_; }
    absl::StatusOr<std::unique_ptr<Lane>> NewLane() override {
      return absl::UnavailableError("no lanes today");
    }
    bool runs_inline() const override { return false; }
    bool healthy() const override { return true; }
    int64_t memory_bytes_in_use() const override { return 0; }
    absl::StatusOr<std::shared_ptr<ResidentMemory>> AllocateResident(int64_t) override {
      return absl::InternalError("no memory");
    }
    absl::StatusOr<std::unique_ptr<Transfer>> NewTransfer() override {
      return absl::InternalError("no transfers");
    }
    int64_t resident_bytes_in_use() const override { return 0; }

   private:
    DeviceInfo info_;
  };
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(MakeHostDevice({.threads = 1}));
  devices.push_back(std::make_unique<Broken>());
  Engine broken(*registry, options, ToleranceContract::Builtin(), std::move(devices), &observer,
                nullptr);
  EXPECT_EQ(broken.Start().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(broken.serving());
  EXPECT_EQ(Execute(broken, Scale()).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace rlk::server
