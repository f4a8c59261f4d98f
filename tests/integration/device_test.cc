// Deadlines, cancellation, load and the loss of the device, with a device that the test holds.
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "kernels/core/status.h"
#include "rlk/v1/parity.grpc.pb.h"
#include "tests/integration/fixture.h"
#include "tests/integration/peer.h"
#include "tests/support/fake_device.h"

namespace rlk::test {
namespace {

using rlk::v1::ActivationService;
using rlk::v1::FinalLogitSoftcapForwardResponse;

// A call that runs beside the test.
class AsyncForward {
 public:
  AsyncForward(ActivationService::Stub* stub, std::chrono::milliseconds deadline) {
    if (deadline.count() > 0) {
      context_.set_deadline(std::chrono::system_clock::now() + deadline);
    }
    done_ = std::async(std::launch::async, [this, stub] {
      return stub->FinalLogitSoftcapForward(&context_, ForwardRequest(), &response_);
    });
  }

  void Cancel() { context_.TryCancel(); }
  grpc::Status Wait() { return done_.get(); }
  const FinalLogitSoftcapForwardResponse& response() const { return response_; }

 private:
  grpc::ClientContext context_;
  FinalLogitSoftcapForwardResponse response_;
  std::future<grpc::Status> done_;
};

class DeviceTest : public ::testing::Test {
 protected:
  std::unique_ptr<TestServer> StartServer(server::Options options = TestOptions()) {
    server::ServerHooks hooks;
    FakeDeviceOptions fake;
    fake.kind = DeviceKind::kHost;
    fake.compute_capability = 0;
    hooks.devices.push_back(MakeFakeDevice(control_, fake));
    hooks.on_device_lost = [this] { lost_.set_value(); };
    auto server = std::make_unique<TestServer>(options, std::move(hooks));
    stub_ = ActivationService::NewStub(DefaultChannel(server->tcp()));
    return server;
  }

  // Until the series has the value: what ends after a call's reply is awaited, not slept for.
  static void AwaitSeries(const TestServer& server, const std::string& series, double value) {
    while (SeriesValue(Scrape(server.metrics()), series) != value) std::this_thread::yield();
  }

  static std::string Rejections(const std::string& reason) {
    return "rlk_admission_rejections_total{reason=\"" + reason + "\"}";
  }

  static std::string Requests(const std::string& code) {
    return "rlk_requests_total{code=\"" + code +
           "\",direction=\"forward\",operator=\"final_logit_softcap\"}";
  }

  std::shared_ptr<FakeControl> control_ = std::make_shared<FakeControl>();
  std::promise<void> lost_;
  std::unique_ptr<ActivationService::Stub> stub_;
};

TEST_F(DeviceTest, DeadlineEndsACallAndTheServerNotices) {
  const auto server = StartServer();
  control_->Hold();
  AsyncForward call(stub_.get(), std::chrono::milliseconds(200));
  EXPECT_EQ(call.Wait().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  control_->Release();
  AwaitSeries(*server, "rlk_inflight_requests", 0);
  AsyncForward next(stub_.get(), {});
  EXPECT_TRUE(next.Wait().ok());
}

// The client's end of a cancelled call says nothing of the server's: the call may be let go before
// the server has read the cancellation, and then it ends well. So calls are cancelled until one
// ended as such on the server; a server that never sees a cancellation never gets there.
TEST_F(DeviceTest, CancellationReachesTheEngine) {
  const auto server = StartServer();
  double cancelled = 0;
  for (int calls = 1; cancelled == 0; ++calls) {
    control_->Hold();
    AsyncForward call(stub_.get(), {});
    control_->AwaitArrivals(FakePoint::kLaunch, calls);
    call.Cancel();
    EXPECT_EQ(call.Wait().error_code(), grpc::StatusCode::CANCELLED);
    control_->Release();
    double ok = 0;
    while (ok + cancelled < calls) {
      const std::string metrics = Scrape(server->metrics());
      ok = SeriesValue(metrics, Requests("OK"));
      cancelled = SeriesValue(metrics, Requests("CANCELLED"));
    }
  }
  AwaitSeries(*server, "rlk_inflight_requests", 0);
}

TEST_F(DeviceTest, ALeaseDoesNotPassDuringACall) {
  const auto server = StartServer();
  const Peer peer(server->tcp());
  control_->Hold();
  auto call = std::async(std::launch::async, [&peer] {
    FinalLogitSoftcapForwardResponse response;
    return peer.operators().FinalLogitSoftcapForward(peer.Context().get(), ForwardRequest(),
                                                     &response);
  });
  control_->AwaitArrivals(FakePoint::kLaunch, 1);
  rlk::v1::RenewSessionRequest renew;
  renew.set_lease_ms(1);
  rlk::v1::RenewSessionResponse renewed;
  ASSERT_TRUE(peer.sessions().RenewSession(peer.Context().get(), renew, &renewed).ok());
  // Whose lease would pass after that of the other.
  const Peer later(server->tcp(), 1);
  AwaitSeries(*server, "rlk_sessions", 1);
  EXPECT_TRUE(peer.sessions().RenewSession(peer.Context().get(), {}, &renewed).ok());
  control_->Release();
  EXPECT_TRUE(call.get().ok());
  AwaitSeries(*server, "rlk_sessions", 0);
}

TEST_F(DeviceTest, FullQueueIsRefusedWithRetryInfo) {
  server::Options options = TestOptions();
  options.limits.queue_calls_max = 1;
  const auto server = StartServer(options);
  control_->Hold();
  constexpr int kCalls = 12;
  std::vector<std::unique_ptr<AsyncForward>> calls;
  for (int i = 0; i < kCalls; ++i) {
    calls.push_back(std::make_unique<AsyncForward>(stub_.get(), std::chrono::milliseconds(0)));
  }
  // At most one waits and at most four have a lane: the others are refused while these are held.
  const std::string series = "rlk_admission_rejections_total{reason=\"QUEUE_FULL\"}";
  while (SeriesValue(Scrape(server->metrics()), series) < 1) std::this_thread::yield();
  control_->Release();
  int refused = 0;
  for (auto& call : calls) {
    const grpc::Status status = call->Wait();
    if (status.ok()) continue;
    ++refused;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    const ErrorFacts facts = FactsOf(status);
    EXPECT_EQ(facts.reason, ReasonName(Reason::kQueueFull));
    EXPECT_TRUE(facts.has_retry_info);
    EXPECT_GT(facts.retry_seconds, 0);
  }
  EXPECT_GE(refused, 1);
}

TEST_F(DeviceTest, WrongBitFoundByRepeatIsDataLoss) {
  const auto server = StartServer();
  control_->FlipBitAt(2);
  rlk::v1::FinalLogitSoftcapForwardRequest request = ForwardRequest();
  request.mutable_options()->set_verification(rlk::v1::VERIFICATION_REPEAT);
  grpc::ClientContext context;
  FinalLogitSoftcapForwardResponse response;
  const grpc::Status status = stub_->FinalLogitSoftcapForward(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(FactsOf(status).reason, ReasonName(Reason::kVerificationFailed));
  EXPECT_EQ(SeriesValue(Scrape(server->metrics()),
                        "rlk_verifications_total{result=\"fail\",verification=\"repeat\"}"),
            1);
}

TEST_F(DeviceTest, LostDeviceMakesTheServerNotServing) {
  const auto server = StartServer();
  const auto channel = DefaultChannel(server->tcp());
  // grpc.health.v1.HealthCheckResponse: field 1 is 1 (SERVING) or 2 (NOT_SERVING).
  EXPECT_EQ(CallRaw(channel, "/grpc.health.v1.Health/Check", "").bytes, "\x08\x01");
  control_->FailAt(FakePoint::kLaunch, 1, /*sticky=*/true);
  AsyncForward call(stub_.get(), {});
  const grpc::Status status = call.Wait();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
  EXPECT_EQ(FactsOf(status).reason, ReasonName(Reason::kDeviceLost));
  lost_.get_future().wait();
  EXPECT_EQ(CallRaw(channel, "/grpc.health.v1.Health/Check", "").bytes, "\x08\x02");
  EXPECT_GE(SeriesValue(Scrape(server->metrics()),
                        "rlk_device_errors_total{class=\"sticky\",device=\"cpu:0\"}"),
            1);
}

TEST_F(DeviceTest, DrainLetsCallsInFlightFinishAndRefusesNewOnes) {
  const auto server = StartServer();
  control_->Hold();
  AsyncForward in_flight(stub_.get(), {});
  control_->AwaitArrivals(FakePoint::kLaunch, 1);
  auto drained = std::async(std::launch::async, [&] { return server->server().Drain(0, 3600); });
  // Calls are still served for a moment; the first refusal says that the drain has begun.
  grpc::Status refused;
  std::vector<std::unique_ptr<AsyncForward>> early;
  const std::string series = "rlk_admission_rejections_total{reason=\"DRAINING\"}";
  while (SeriesValue(Scrape(server->metrics()), series) < 1) {
    early.push_back(std::make_unique<AsyncForward>(stub_.get(), std::chrono::milliseconds(0)));
  }
  // Every call has arrived: it is held or refused. Only then may the drain come to its end.
  const double calls = static_cast<double>(early.size()) + 1;
  while (true) {
    const std::string text = Scrape(server->metrics());
    if (SeriesValue(text, "rlk_inflight_requests") + SeriesValue(text, series) == calls) break;
    std::this_thread::yield();
  }
  control_->Release();
  EXPECT_TRUE(in_flight.Wait().ok());
  EXPECT_TRUE(drained.get());
  int refusals = 0;
  for (auto& call : early) {
    const grpc::Status status = call->Wait();
    if (status.ok()) continue;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
    refusals += FactsOf(status).reason == ReasonName(Reason::kDraining);
  }
  EXPECT_GE(refusals, 1);
}

// A check computes its sides one after the other: the second is submitted while the server drains.
TEST_F(DeviceTest, DrainLetsAChecksCallsFinish) {
  const auto server = StartServer();
  const auto parity = rlk::v1::ParityService::NewStub(DefaultChannel(server->tcp()));
  rlk::v1::CheckParityRequest request;
  request.mutable_invocation()->set_method("final_logit_softcap.forward");
  request.mutable_invocation()->mutable_request()->PackFrom(ForwardRequest());
  rlk::v1::CheckParityResponse response;
  control_->Hold();
  auto check = std::async(std::launch::async, [&] {
    grpc::ClientContext context;
    return parity->CheckParity(&context, request, &response);
  });
  control_->AwaitArrivals(FakePoint::kLaunch, 1);
  auto drained = std::async(std::launch::async, [&] { return server->server().Drain(0, 3600); });
  // The first refusal says that the drain has begun.
  std::vector<std::unique_ptr<AsyncForward>> early;
  while (SeriesValue(Scrape(server->metrics()), Rejections("DRAINING")) < 1) {
    early.push_back(std::make_unique<AsyncForward>(stub_.get(), std::chrono::milliseconds(0)));
  }
  control_->Release();
  const grpc::Status status = check.get();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(response.passed());
  EXPECT_TRUE(drained.get());
}

// Whether the callers hear of it before the end of the transport is the machine's; either way they
// may repeat their calls elsewhere.
TEST_F(DeviceTest, TheEndOfADrainRefusesWhatWaitsForADevice) {
  const auto server = StartServer();
  control_->Hold();
  constexpr int kLanes = 4, kCalls = 12;
  std::vector<std::unique_ptr<AsyncForward>> calls;
  for (int i = 0; i < kCalls; ++i) {
    calls.push_back(std::make_unique<AsyncForward>(stub_.get(), std::chrono::milliseconds(0)));
  }
  AwaitSeries(*server, "rlk_inflight_requests", kCalls);
  control_->AwaitArrivals(FakePoint::kLaunch, kLanes);
  auto drained = std::async(std::launch::async, [&] { return server->server().Drain(0, 2); });
  AwaitSeries(*server, Rejections("DRAINING"), kCalls - kLanes);
  control_->Release();
  drained.get();
  for (auto& call : calls) {
    const grpc::Status status = call->Wait();
    EXPECT_TRUE(status.ok() || status.error_code() == grpc::StatusCode::UNAVAILABLE)
        << status.error_message();
  }
}

}  // namespace
}  // namespace rlk::test
