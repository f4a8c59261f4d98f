// Queue, lanes, deadlines, drain: through the engine, on a device that the test controls.
#include "server/engine/engine.h"

#include <atomic>
#include <chrono>
#include <functional>
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

using std::chrono::steady_clock;
using test::EngineHarness;
using test::Execute;
using test::FakePoint;
using test::OutputValues;
using test::Pending;
using test::ReasonOf;
using test::Submit;

class EngineTest : public testing::Test, protected EngineHarness {};

TEST_F(EngineTest, ComputesAndReports) {
  Start();
  Call call = Scale(1, 3);
  call.attributes = {{.spec = 0, .number = 3}};
  const auto result = Execute(*engine, std::move(call));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(OutputValues<float>(*result, "y"), (std::vector<float>{3, 6, 9}));
  const CallReport& report = result->report;
  EXPECT_EQ(report.contract, "toy/v1");
  EXPECT_EQ(report.backend, Backend::kCuda);
  EXPECT_EQ(report.kernel, "toy_cuda");
  EXPECT_EQ(report.device.uuid, "fake-0");
  EXPECT_EQ(report.claim, ClaimLevel::kL3Portable);
  EXPECT_EQ(report.attributes[0].number, 3);
  EXPECT_EQ(report.input_capture, InputCapture::kSnapshot);
  EXPECT_EQ(report.transports, std::vector<std::string>{"inline"});
  EXPECT_EQ(report.phases.stage_in, 1);
  EXPECT_EQ(report.phases.kernel, 2);
  EXPECT_EQ(report.phases.stage_out, 3);
  EXPECT_GT(report.phases.queue, 0);
  EXPECT_EQ(observer.calls, 1);
  EXPECT_EQ(observer.in_flight, 0);
}

TEST_F(EngineTest, EmptyTensorsAreNotLaunched) {
  Start();
  Call call = Scale(1, 0);
  call.options.digest_tensors = true;
  const auto result = Execute(*engine, std::move(call));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(OutputValues<float>(*result, "y").size(), 0u);
  EXPECT_TRUE(result->report.output_digests[0].tensor.has_value());
  EXPECT_EQ(control->arrivals(FakePoint::kLaunch), 0);
}

TEST_F(EngineTest, ACallOfThisProcessIsNotBoundByMessages) {
  Start();
  const int64_t elements = options.limits.inline_bytes_max / 4 + 1;
  EXPECT_EQ(ReasonOf(Execute(*engine, Scale(1, elements)).status()), Reason::kMessageTooLarge);
  Call call = Scale(1, elements);
  call.in_process = true;
  call.output_fill = std::byte{0x5A};
  const auto result = Execute(*engine, std::move(call));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(OutputValues<float>(*result, "y").size(), static_cast<size_t>(elements));
}

TEST_F(EngineTest, BackendAndDeviceChoice) {
  struct Case {
    const char* what;
    std::string backend, uuid;
    std::string kernel;  // or
    absl::StatusCode code;
    Reason reason;
  };
  const Case kCases[] = {
      {"default", "", "", "toy_cuda", absl::StatusCode::kOk, {}},
      {"cpu by name", "cpu", "", "toy_cpu", absl::StatusCode::kOk, {}},
      {"the host by uuid", "", "cpu-0", "toy_cpu", absl::StatusCode::kOk, {}},
      {"the GPU by uuid", "", "fake-0", "toy_cuda", absl::StatusCode::kOk, {}},
      {"an unknown uuid", "", "nowhere", "", absl::StatusCode::kFailedPrecondition,
       Reason::kDeviceNotFound},
      {"cpu on a GPU", "cpu", "fake-0", "", absl::StatusCode::kFailedPrecondition,
       Reason::kBackendUnavailable},
      {"an unknown backend", "tpu", "", "", absl::StatusCode::kInvalidArgument,
       Reason::kUnknownBackend},
  };
  Start();
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.what);
    Call call = Scale();
    call.options.backend = c.backend;
    call.options.device_uuid = c.uuid;
    const auto result = Execute(*engine, std::move(call));
    ASSERT_EQ(result.status().code(), c.code) << result.status();
    if (result.ok()) {
      EXPECT_EQ(result->report.kernel, c.kernel);
    } else {
      EXPECT_EQ(ReasonOf(result.status()), c.reason);
    }
  }
  Call call = Scale();
  call.options.device_uuid = "nowhere";
  EXPECT_EQ(GetErrorDetail(Execute(*engine, std::move(call)).status())->allowed, "fake-0, cpu-0");
}

TEST_F(EngineTest, RefusesSourcesWithoutAResolver) {
  Start();
  for (TensorSource source : {TensorSource::kResident, TensorSource::kArena}) {
    Call call = Scale();
    call.inputs[0].source = source;
    const auto result = Execute(*engine, std::move(call));
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(ReasonOf(result.status()), Reason::kSourceNotSupported);
    EXPECT_EQ(GetErrorDetail(result.status())->field, "x");
  }
  EXPECT_EQ(observer.rejected(Reason::kSourceNotSupported), 2);
}

TEST_F(EngineTest, AMethodsOwnCheckSeesTheSelectedContract) {
  Start();
  for (const char* contract : {"", "toy/v1"}) {
    Call call = Scale();
    call.attributes = {{.spec = 0, .number = test::kToyRefusedFactor}};
    call.options.contract = contract;
    const auto result = Execute(*engine, std::move(call));
    EXPECT_EQ(ReasonOf(result.status()), Reason::kAttributeOutOfRange);
    EXPECT_EQ(GetErrorDetail(result.status())->field, "factor");
    EXPECT_EQ(GetErrorDetail(result.status())->value, "toy/v1");
  }
}

TEST_F(EngineTest, LiveInlineTensorsAreReportedAsSnapshot) {
  Start();
  Call call = Scale();
  call.options.input_capture = InputCapture::kLive;
  const auto result = Execute(*engine, std::move(call));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->report.input_capture, InputCapture::kSnapshot);
}

TEST_F(EngineTest, RunsInTheOrderOfTheQueue) {
  options.lanes = 1;
  Start();
  std::mutex mutex;
  std::vector<int> order;
  control->Hold();
  std::vector<Pending> pending;
  for (int i = 0; i < 20; ++i) {
    auto& entry = pending.emplace_back();
    engine->Submit(Scale(static_cast<float>(i)),
                   [i, &mutex, &order, callback = entry.Callback()](auto outcome) {
                     {
                       std::lock_guard<std::mutex> lock(mutex);
                       order.push_back(i);
                     }
                     callback(std::move(outcome));
                   });
  }
  control->Release();
  for (int i = 0; i < 20; ++i) {
    const auto& outcome = pending[static_cast<size_t>(i)].Wait();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(OutputValues<float>(*outcome, "y")[0], 2.0f * static_cast<float>(i));
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST_F(EngineTest, LanesOverlap) {
  options.lanes = 3;
  Start();
  control->Hold();
  std::vector<Pending> pending;
  for (int i = 0; i < 5; ++i) pending.push_back(Submit(*engine, Scale()));
  // Three calls are in flight although none is done; the other two wait.
  control->AwaitArrivals(FakePoint::kLaunch, 3);
  EXPECT_EQ(control->busy_lanes_max(), 3);
  EXPECT_EQ(control->arrivals(FakePoint::kLaunch), 3);
  for (const Pending& call : pending) EXPECT_FALSE(call.done());
  control->Release();
  for (const Pending& call : pending) EXPECT_TRUE(call.Wait().ok());
  EXPECT_EQ(control->busy_lanes_max(), 3);
}

TEST_F(EngineTest, TakesNewWorkWhileACallIsInFlight) {
  options.lanes = 2;
  Start();
  control->Hold();
  const Pending first = Submit(*engine, Scale());
  control->AwaitArrivals(FakePoint::kLaunch, 1);
  // Many polls later the thread sleeps between looks; a new call must still be taken.
  control->AwaitArrivals(FakePoint::kDone, 100);
  const Pending second = Submit(*engine, Scale());
  control->AwaitArrivals(FakePoint::kLaunch, 2);
  control->Release();
  EXPECT_TRUE(first.Wait().ok());
  EXPECT_TRUE(second.Wait().ok());
}

TEST_F(EngineTest, AdmissionIsBoundedAndNeverBlocks) {
  options.lanes = 1;
  options.limits.queue_calls_max = 4;
  Start();
  control->Hold();
  std::vector<Pending> pending;
  pending.push_back(Submit(*engine, Scale()));
  control->AwaitArrivals(FakePoint::kLaunch, 1);
  for (int i = 0; i < 4; ++i) pending.push_back(Submit(*engine, Scale()));
  const auto refused = Execute(*engine, Scale());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kQueueFull);
  EXPECT_GT(GetErrorDetail(refused.status())->retry_after_ms, 0);
  EXPECT_EQ(observer.rejected(Reason::kQueueFull), 1);
  EXPECT_EQ(observer.queue_calls_max, 4);
  control->Release();
  for (const Pending& call : pending) EXPECT_TRUE(call.Wait().ok());
  EXPECT_EQ(observer.queue_calls, 0);
  EXPECT_EQ(observer.queue_bytes, 0);
  EXPECT_TRUE(Execute(*engine, Scale()).ok());
}

TEST_F(EngineTest, QueueBytesAreBounded) {
  options.lanes = 1;
  options.limits.queue_bytes_max = 100;
  Start();
  control->Hold();
  std::vector<Pending> pending;
  pending.push_back(Submit(*engine, Scale()));
  control->AwaitArrivals(FakePoint::kLaunch, 1);
  for (int i = 0; i < 3; ++i) pending.push_back(Submit(*engine, Scale(1, 8)));  // 32 bytes each
  const auto refused = Execute(*engine, Scale(1, 8));
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kBytesExhausted);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  control->Release();
  for (const Pending& call : pending) EXPECT_TRUE(call.Wait().ok());
}

// The clock of the deadline tests stands still until a test moves it.
std::atomic<int64_t> g_now_ms{1'000'000};
steady_clock::time_point TestNow() {
  return steady_clock::time_point(std::chrono::milliseconds(g_now_ms.load()));
}

struct StageCase {
  const char* what;
  FakePoint point;      // where the caller goes away
  CancelStage noticed;  // where that is noticed
  int64_t launches;
};

const StageCase kStages[] = {
    {"between begin and launch", FakePoint::kBegin, CancelStage::kLaunch, 0},
    {"while staging in", FakePoint::kStageIn, CancelStage::kLaunch, 0},
    {"while making outputs", FakePoint::kOutput, CancelStage::kLaunch, 0},
    {"while launching", FakePoint::kLaunch, CancelStage::kStageOut, 1},
};

TEST_F(EngineTest, CancellationIsSeenAtEachStage) {
  Start();
  for (const StageCase& c : kStages) {
    SCOPED_TRACE(c.what);
    const auto cancelled = std::make_shared<std::atomic<bool>>(false);
    control->SetHook([&](FakePoint point, int64_t) {
      if (point == c.point) cancelled->store(true);
    });
    const int64_t launches = control->arrivals(FakePoint::kLaunch);
    const int64_t before = observer.cancelled(c.noticed);
    Call call = Scale();
    call.cancelled = cancelled;
    const auto outcome = Execute(*engine, std::move(call));
    control->SetHook(nullptr);
    EXPECT_EQ(outcome.status().code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(ReasonOf(outcome.status()), Reason::kCancelled);
    EXPECT_EQ(observer.cancelled(c.noticed), before + 1);
    EXPECT_EQ(control->arrivals(FakePoint::kLaunch) - launches, c.launches);
    EXPECT_TRUE(Execute(*engine, Scale()).ok());
  }
}

TEST_F(EngineTest, DeadlinesAreSeenAtEachStage) {
  options.now = &TestNow;
  Start();
  for (const StageCase& c : kStages) {
    SCOPED_TRACE(c.what);
    control->SetHook([&](FakePoint point, int64_t) {
      if (point == c.point) g_now_ms += 1000;
    });
    const int64_t before = observer.cancelled(c.noticed);
    const int64_t launches = control->arrivals(FakePoint::kLaunch);
    Call call = Scale();
    call.deadline = TestNow() + std::chrono::milliseconds(500);
    const auto outcome = Execute(*engine, std::move(call));
    control->SetHook(nullptr);
    EXPECT_EQ(outcome.status().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(ReasonOf(outcome.status()), Reason::kDeadlineExceeded);
    EXPECT_EQ(observer.cancelled(c.noticed), before + 1);
    EXPECT_EQ(control->arrivals(FakePoint::kLaunch) - launches, c.launches);
  }
  // Not yet passed by one tick; passed at its tick.
  Call call = Scale();
  call.deadline = TestNow() + std::chrono::nanoseconds(1);
  EXPECT_TRUE(Execute(*engine, std::move(call)).ok());
  call = Scale();
  call.deadline = TestNow();
  EXPECT_EQ(Execute(*engine, std::move(call)).status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(EngineTest, CallsThatWaitAreGivenUpWhenTheirCallerIsGone) {
  options.lanes = 1;
  options.now = &TestNow;
  Start();
  control->Hold();
  const Pending first = Submit(*engine, Scale());
  control->AwaitArrivals(FakePoint::kLaunch, 1);
  const auto cancelled = std::make_shared<std::atomic<bool>>(false);
  Call call = Scale();
  call.cancelled = cancelled;
  const Pending second = Submit(*engine, std::move(call));
  call = Scale();
  call.deadline = TestNow() + std::chrono::milliseconds(500);
  const Pending third = Submit(*engine, std::move(call));
  cancelled->store(true);
  g_now_ms += 1000;
  control->Release();
  EXPECT_TRUE(first.Wait().ok());
  EXPECT_EQ(second.Wait().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(third.Wait().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(observer.cancelled(CancelStage::kQueue), 2);
  EXPECT_EQ(control->arrivals(FakePoint::kBegin), 1);
}

TEST_F(EngineTest, LargeOutputsAreNotCopiedForACallerThatIsGone) {
  options.refuse_large_replies = false;
  Start();
  control->Hold();
  const auto cancelled = std::make_shared<std::atomic<bool>>(false);
  Call call = Scale(1, (1 << 20) / 4 + 1);
  call.cancelled = cancelled;
  const Pending pending = Submit(*engine, std::move(call));
  control->AwaitArrivals(FakePoint::kDone, 2);
  cancelled->store(true);
  control->Release();
  EXPECT_EQ(pending.Wait().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(control->arrivals(FakePoint::kStageOut), 0);
  EXPECT_EQ(observer.cancelled(CancelStage::kStageOut), 1);
}

TEST_F(EngineTest, AFaultFailsItsCallAndNoOther) {
  Start();
  const FakePoint kPoints[] = {FakePoint::kBegin,  FakePoint::kStageIn,  FakePoint::kOutput,
                               FakePoint::kLaunch, FakePoint::kStageOut, FakePoint::kDone,
                               FakePoint::kDigest};
  for (FakePoint point : kPoints) {
    SCOPED_TRACE(static_cast<int>(point));
    control->FailAt(point, control->arrivals(point) + 1, /*sticky=*/false);
    Call call = Scale();
    call.options.digest_tensors = true;
    const auto failed = Execute(*engine, std::move(call));
    EXPECT_FALSE(failed.ok());
    const bool memory = point == FakePoint::kBegin || point == FakePoint::kOutput;
    EXPECT_EQ(failed.status().code(),
              memory ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kInternal);
    const auto next = Execute(*engine, Scale(5));
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_EQ(OutputValues<float>(*next, "y")[0], 10);
    EXPECT_TRUE(engine->serving());
  }
}

TEST_F(EngineTest, DrainFinishesWhatIsInFlightAndRefusesTheRest) {
  options.lanes = 1;
  Start();
  EXPECT_TRUE(engine->serving());
  control->Hold();
  std::vector<Pending> pending;
  for (int i = 0; i < 10; ++i) pending.push_back(Submit(*engine, Scale()));
  // Nothing can be done by then.
  EXPECT_FALSE(engine->Drain(steady_clock::now()));
  EXPECT_FALSE(engine->serving());
  const auto refused = Execute(*engine, Scale());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kDraining);
  control->Release();
  EXPECT_TRUE(engine->Drain(steady_clock::time_point::max()));
  for (const Pending& call : pending) {
    EXPECT_TRUE(call.done());
    EXPECT_TRUE(call.Wait().ok());
  }
  EXPECT_EQ(observer.in_flight, 0);
  EXPECT_EQ(observer.calls, 11);
}

TEST_F(EngineTest, ADrainTakesTheCallsOfThisProcess) {
  Start();
  EXPECT_TRUE(engine->Drain(steady_clock::now()));
  EXPECT_EQ(ReasonOf(Execute(*engine, Scale()).status()), Reason::kDraining);
  Call call = Scale();
  call.in_process = true;
  EXPECT_TRUE(Execute(*engine, call).ok());
  EXPECT_TRUE(engine->Drain(steady_clock::time_point::max()));
}

TEST_F(EngineTest, TheEndOfADrainRefusesWhatWaits) {
  options.lanes = 2;
  Start();
  control->Hold();
  std::vector<Pending> pending;
  for (int i = 0; i < 10; ++i) pending.push_back(Submit(*engine, Scale()));
  control->AwaitArrivals(FakePoint::kLaunch, 2);
  EXPECT_FALSE(engine->Drain(steady_clock::now()));
  engine->RefuseWaiting();
  for (int i = 2; i < 10; ++i) {
    ASSERT_TRUE(pending[i].done());
    EXPECT_EQ(pending[i].Wait().status().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(ReasonOf(pending[i].Wait().status()), Reason::kDraining);
  }
  // What runs goes on.
  control->Release();
  EXPECT_TRUE(engine->Drain(steady_clock::time_point::max()));
  EXPECT_TRUE(pending[0].Wait().ok());
  EXPECT_TRUE(pending[1].Wait().ok());
  EXPECT_EQ(observer.in_flight, 0);
}

TEST_F(EngineTest, DestructionFinishesWhatIsInFlight) {
  Start();
  std::vector<Pending> pending;
  for (int i = 0; i < 50; ++i) pending.push_back(Submit(*engine, Scale()));
  engine.reset();
  for (const Pending& call : pending) {
    ASSERT_TRUE(call.done());
    EXPECT_TRUE(call.Wait().ok());
  }
}

TEST_F(EngineTest, ACallbackMaySubmitAgain) {
  Start();
  for (const char* backend : {"cuda", "cpu"}) {
    Pending second;
    Call call = Scale();
    call.options.backend = backend;
    engine->Submit(call, [&](absl::StatusOr<CallResult> outcome) {
      EXPECT_TRUE(outcome.ok());
      engine->Submit(call, second.Callback());
    });
    EXPECT_TRUE(second.Wait().ok());
  }
}

TEST_F(EngineTest, LoadIsSharedByDevicesOfAKind) {
  const auto second = std::make_shared<test::FakeControl>();
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(test::MakeFakeDevice(control));
  devices.push_back(test::MakeFakeDevice(second, {.ordinal = 1, .uuid = "fake-1"}));
  options.lanes = 1;
  StartWith(std::move(devices));
  control->Hold();
  second->Hold();
  std::vector<Pending> pending;
  for (int i = 0; i < 2; ++i) pending.push_back(Submit(*engine, Scale()));
  control->AwaitArrivals(FakePoint::kLaunch, 1);
  second->AwaitArrivals(FakePoint::kLaunch, 1);
  control->Release();
  second->Release();
  for (const Pending& call : pending) EXPECT_TRUE(call.Wait().ok());
}

}  // namespace
}  // namespace rlk::server
