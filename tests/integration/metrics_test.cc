// The metrics: their names are frozen in a golden file, and they move.
#include "server/metrics/metrics.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <ctime>
#include <fstream>
#include <future>
#include <set>
#include <sstream>
#include <thread>

#include "kernels/core/status.h"
#include "proto/wire/signatures.h"
#include "server/devices.h"
#include "tests/integration/fixture.h"

namespace rlk::test {
namespace {

std::string ReadGolden(const std::string& name) {
  std::ifstream file(std::string(RLK_SOURCE_DIR) + "/tests/golden/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Registry BoundRegistry() {
  Registry registry;
  server::FillRegistry(TestOptions(), {}, registry);
  std::vector<MethodSignature> signatures;
  auto bindings = wire::CompileSignatures(wire::OperatorFiles());
  EXPECT_TRUE(bindings.ok()) << bindings.status();
  for (wire::MethodBinding& binding : *bindings) {
    signatures.push_back(std::move(binding.signature));
  }
  EXPECT_TRUE(registry.Bind(std::move(signatures)).ok());
  return registry;
}

DeviceInfo Host() {
  DeviceInfo info;
  info.name = "host";
  return info;
}

TEST(MetricsTest, FamiliesAreThoseOfTheGoldenFile) {
  const Registry registry = BoundRegistry();
  const server::Metrics metrics(registry, {Host()}, {"1", "c", "none", "none"});
  EXPECT_EQ(metrics.Describe(), ReadGolden("metrics.txt"))
      << "a renamed metric breaks dashboards; if it is meant, commit tests/golden/metrics.txt with "
         "the reason";
}

TEST(MetricsTest, ReasonsAreThoseOfTheGoldenFile) {
  std::string names;
  for (int i = 1; i < kReasonCount; ++i) {
    names += std::string(ReasonName(static_cast<Reason>(i))) + "\n";
  }
  EXPECT_EQ(names, ReadGolden("error_reasons.txt"))
      << "clients match on reasons; if the change is meant, commit tests/golden/error_reasons.txt "
         "with the reason";
}

// What stands before the value in each line of `text`.
std::vector<std::string> SeriesOf(const std::string& text) {
  std::vector<std::string> series;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line[0] != '#') series.push_back(line.substr(0, line.rfind(' ')));
  }
  return series;
}

TEST(MetricsTest, EverySeriesIsThereAtZeroFromTheStart) {
  const Registry registry = BoundRegistry();
  const server::Metrics metrics(registry, {Host()}, {"1", "c", "none", "none"});
  const std::string text = metrics.Text();
  const std::vector<std::string> all = SeriesOf(text);
  for (const std::string& series : all) {
    if (series.rfind("process_", 0) == 0) {
      EXPECT_GT(SeriesValue(text, series), 0) << series;
      continue;
    }
    EXPECT_EQ(SeriesValue(text, series), series.rfind("rlk_build_info{", 0) == 0 ? 1 : 0) << series;
  }
  EXPECT_GT(all.size(), 100u);
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size()) << "a series twice";
}

TEST(MetricsTest, EightGpusHaveAtMostTwoThousandSeries) {
  constexpr size_t kSeriesMax = 2000;
  const Registry registry = BoundRegistry();
  std::vector<DeviceInfo> devices = {Host()};
  for (int ordinal = 0; ordinal < 8; ++ordinal) {
    DeviceInfo gpu;
    gpu.kind = DeviceKind::kCuda;
    gpu.ordinal = ordinal;
    devices.push_back(std::move(gpu));
  }
  const server::Metrics metrics(registry, devices, {"1", "c", "none", "none"});
  EXPECT_LE(SeriesOf(metrics.Text()).size(), kSeriesMax);
}

TEST(MetricsTest, EveryReasonOfARefusalHasASeries) {
  const Registry registry = BoundRegistry();
  server::Metrics metrics(registry, {Host()}, {"1", "c", "none", "none"});
  for (int i = 0; i < kReasonCount; ++i) {
    const auto reason = static_cast<Reason>(i);
    metrics.OnRejected(reason);
    const std::string label = "{reason=\"" + std::string(ReasonName(reason)) + "\"}";
    const std::string text = metrics.Text();
    const double contract = SeriesValue(text, "rlk_contract_rejections_total" + label);
    const double admission = SeriesValue(text, "rlk_admission_rejections_total" + label);
    EXPECT_FALSE(contract == 1 && admission == 1) << label;
    // Not a refusal of a request: these end in the code of rlk_requests_total.
    const bool neither = reason == Reason::kUnknown || reason == Reason::kDeadlineExceeded ||
                         reason == Reason::kCancelled || reason == Reason::kVerificationFailed ||
                         reason == Reason::kUnwrittenOutput || reason == Reason::kInternal;
    EXPECT_EQ(contract == 1 || admission == 1, !neither) << label;
  }
}

TEST(MetricsTest, CountsWhatTheArithmeticMadeNonFinite) {
  const Registry registry = BoundRegistry();
  server::Metrics metrics(registry, {Host()}, {"1", "c", "none", "none"});
  const Method& method = *registry.Find("final_logit_softcap.backward");
  VerificationReport report;
  report.kind = Verification::kReference;
  report.outputs = {{.name = "a", .nonfinite = 2}, {.name = "b", .nonfinite = 3}};
  metrics.OnVerification(method, report);
  const auto value = [&](const char* direction) {
    return SeriesValue(metrics.Text(), std::string("rlk_nonfinite_total{direction=\"") + direction +
                                           "\",operator=\"final_logit_softcap\"}");
  };
  EXPECT_EQ(value("backward"), 5);
  EXPECT_EQ(value("forward"), 0);
}

TEST(MetricsTest, CallsMoveTheSeries) {
  TestServer server;
  const auto stub = rlk::v1::ActivationService::NewStub(DefaultChannel(server.tcp()));
  constexpr int kCalls = 3;
  for (int i = 0; i < kCalls; ++i) {
    grpc::ClientContext good, wrong;
    rlk::v1::FinalLogitSoftcapForwardResponse response;
    ASSERT_TRUE(stub->FinalLogitSoftcapForward(&good, ForwardRequest(), &response).ok());
    rlk::v1::FinalLogitSoftcapForwardRequest request = ForwardRequest();
    request.set_softcap(-1);
    EXPECT_FALSE(stub->FinalLogitSoftcapForward(&wrong, request, &response).ok());
  }
  EXPECT_FALSE(CallRaw(DefaultChannel(server.tcp()), kForwardPath, "\xff").status.ok());
  const std::string text = Scrape(server.metrics());
  const auto value = [&](const std::string& series) { return SeriesValue(text, series); };
  const std::string method = "direction=\"forward\",operator=\"final_logit_softcap\"}";
  EXPECT_EQ(value("rlk_requests_total{code=\"OK\"," + method), kCalls);
  EXPECT_EQ(value("rlk_requests_total{code=\"INVALID_ARGUMENT\"," + method), kCalls + 1);
  EXPECT_EQ(value("rlk_contract_rejections_total{reason=\"ATTRIBUTE_OUT_OF_RANGE\"}"), kCalls);
  EXPECT_EQ(value("rlk_contract_rejections_total{reason=\"MALFORMED_MESSAGE\"}"), 1);
  EXPECT_EQ(value("rlk_request_duration_seconds_count{" + method), 2 * kCalls + 1);
  EXPECT_GT(value("rlk_request_duration_seconds_sum{" + method), 0);
  EXPECT_EQ(value("rlk_phase_duration_seconds_count{phase=\"kernel\"}"), kCalls);
  EXPECT_EQ(value("rlk_request_bytes_count"), 2 * kCalls + 1);
  EXPECT_EQ(value("rlk_response_bytes_sum"), kCalls * 24);
  EXPECT_EQ(value("rlk_transport_bytes_total{direction=\"out\",transport=\"inline\"}"),
            kCalls * 24);
  EXPECT_GT(value("rlk_transport_bytes_total{direction=\"in\",transport=\"inline\"}"), kCalls * 24);
  EXPECT_EQ(value("rlk_inflight_requests"), 0);
}

TEST(MetricsTest, NoClientMakesASeries) {
  TestServer server;
  const auto channel = DefaultChannel(server.tcp());
  const auto stub = rlk::v1::ActivationService::NewStub(channel);
  const std::vector<std::string> before = SeriesOf(Scrape(server.metrics()));
  const std::vector<std::string> hostile = {
      "",      "x\"} 1\nrlk_evil 1", std::string(200, 'a'), "\xc3\xa9", "cpu",
      "../..", "rlk_requests_total"};
  for (const std::string& text : hostile) {
    rlk::v1::FinalLogitSoftcapForwardRequest request = ForwardRequest();
    request.mutable_options()->set_contract(text);
    request.mutable_options()->set_backend(text);
    request.mutable_options()->set_device_uuid(text);
    request.mutable_options()->add_wanted_outputs(text);
    grpc::ClientContext context;
    context.AddMetadata("traceparent", "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01");
    rlk::v1::FinalLogitSoftcapForwardResponse response;
    EXPECT_FALSE(stub->FinalLogitSoftcapForward(&context, request, &response).ok());
    CallRaw(channel, kForwardPath, text);
    EXPECT_FALSE(CallRaw(channel, "/rlk.v1.ActivationService/" + text, "").status.ok());
    EXPECT_FALSE(CallRaw(channel, "/" + text + "/FinalLogitSoftcapForward", "").status.ok());
  }
  EXPECT_EQ(SeriesOf(Scrape(server.metrics())), before);
}

// A scrape that cannot go on holds nothing that a call needs: with a lock of it in a call's path
// this test would never end.
TEST(MetricsTest, ScrapeThatStandsStillBlocksNoCall) {
  const Registry registry = BoundRegistry();
  server::Metrics metrics(registry, {Host()}, {"1", "c", "none", "none"});
  std::promise<void> scraping, go_on;
  metrics.SetHoldings([&] {
    scraping.set_value();
    go_on.get_future().wait();
    return server::Metrics::Holdings{};
  });
  std::string text;
  std::jthread scrape([&] { text = metrics.Text(); });
  scraping.get_future().wait();
  const Method& method = *registry.Find("final_logit_softcap.forward");
  CallReport report;
  report.fallback.emplace();
  VerificationReport verification;
  verification.kind = Verification::kRepeat;
  metrics.OnInFlight(1);
  metrics.OnQueue(Host(), 1, 1);
  metrics.OnCallDone(&method, absl::OkStatus(), &report, 1, 1, 1);
  metrics.OnRejected(Reason::kQueueFull);
  metrics.OnCancelled(server::CancelStage::kQueue);
  metrics.OnDeviceError(Host(), true);
  metrics.OnVerification(method, verification);
  metrics.OnStream(true, 1);
  metrics.OnSent(1);
  metrics.OnInFlight(-1);
  go_on.set_value();
  scrape.join();
  EXPECT_EQ(SeriesValue(text, "rlk_phase_duration_seconds_count{phase=\"kernel\"}"), 1);
}

// Whoever asks for metrics and does not read them stands in nobody's way.
TEST(MetricsTest, ScraperThatNeverReadsBlocksNoCall) {
  TestServer server;
  std::vector<int> scrapers;
  for (int i = 0; i < 16; ++i) {
    const int fd = ConnectTcp(server.metrics());
    ASSERT_GE(fd, 0);
    const std::string get = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    ASSERT_EQ(send(fd, get.data(), get.size(), MSG_NOSIGNAL), static_cast<ssize_t>(get.size()));
    scrapers.push_back(fd);
  }
  const auto stub = rlk::v1::ActivationService::NewStub(DefaultChannel(server.tcp()));
  for (int i = 0; i < 100; ++i) {
    grpc::ClientContext context;
    rlk::v1::FinalLogitSoftcapForwardResponse response;
    ASSERT_TRUE(stub->FinalLogitSoftcapForward(&context, ForwardRequest(), &response).ok());
  }
  for (const int fd : scrapers) close(fd);
}

TEST(MetricsTest, DrainAndLimitsAreTold) {
  server::Options options = TestOptions();
  options.limits.resident_bytes_max = 12345678;
  TestServer server(options);
  const std::string before = Scrape(server.metrics());
  EXPECT_EQ(SeriesValue(before, "rlk_drain_deadline_timestamp_seconds"), 0);
  EXPECT_EQ(SeriesValue(before, "rlk_memory_limit_bytes{kind=\"resident\"}"), 12345678);
  EXPECT_EQ(SeriesValue(before, "rlk_memory_limit_bytes{kind=\"device\"}"),
            static_cast<double>(options.limits.device_bytes_max));
  EXPECT_EQ(SeriesValue(before, "rlk_memory_limit_bytes{kind=\"arena\"}"),
            static_cast<double>(Limits().arena_bytes_max));
  EXPECT_EQ(SeriesValue(before, "rlk_memory_limit_bytes{kind=\"queue\"}"),
            static_cast<double>(options.limits.queue_bytes_max));
  const double now = static_cast<double>(time(nullptr));
  server.server().Drain(0, 30);
  const double deadline =
      SeriesValue(Scrape(server.metrics()), "rlk_drain_deadline_timestamp_seconds");
  EXPECT_GE(deadline, now + 30);
  EXPECT_LE(deadline, static_cast<double>(time(nullptr)) + 31);
}

}  // namespace
}  // namespace rlk::test
