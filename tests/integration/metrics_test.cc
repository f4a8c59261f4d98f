// The metrics: their names are frozen in a golden file, and they move.
#include "server/metrics/metrics.h"

#include <cmath>
#include <fstream>
#include <sstream>

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

TEST(MetricsTest, EverySeriesIsThereAtZeroFromTheStart) {
  const Registry registry = BoundRegistry();
  const server::Metrics metrics(registry, {Host()}, {"1", "c", "none", "none"});
  std::istringstream lines(metrics.Text());
  int series = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    ++series;
    const double value = std::stod(line.substr(line.rfind(' ') + 1));
    EXPECT_EQ(value, line.compare(0, 15, "rlk_build_info{") == 0 ? 1 : 0) << line;
  }
  EXPECT_GT(series, 100);
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

}  // namespace
}  // namespace rlk::test
