// CheckParity and CheckInvariance over gRPC, by the C++ client: this server, two servers, servers
// that do not answer, faults, refusals.
#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/checks.h"
#include "kernels/core/counter_random.h"
#include "kernels/core/status.h"
#include "kernels/ops/adaln_projection_3mod/adaln_projection_3mod.h"
#include "kernels/ops/det_linear/det_linear.h"
#include "kernels/ops/final_logit_softcap/final_logit_softcap.h"
#include "kernels/ops/rms_norm/rms_norm.h"
#include "kernels/ops/timestep_mlp_fp32/timestep_mlp_fp32.h"
#include "kernels/ops/timestep_sinusoid_h3/timestep_sinusoid_h3.h"
#include "server/rpc/parity_check_messages.h"
#include "tests/integration/peer.h"
#include "tests/integration/stuck_checks.h"

namespace rlk::test {
namespace {

client::Tensor Normal(const std::vector<int64_t>& shape, uint64_t seed) {
  client::Tensor tensor = *client::Tensor::Allocate(DType::kF32, shape);
  uint64_t i = 0;
  for (float& value : tensor.mutable_as<float>()) {
    value = static_cast<float>(NearlyNormal(RandomBits(seed, i++)));
  }
  return tensor;
}

client::Client Connect(const TestServer& server) {
  return *client::Client::Connect(const_cast<TestServer&>(server).tcp());
}

// rms_norm.forward of `rows` rows.
client::CallRequest NormCall(int64_t rows, int64_t width = 40) {
  client::CallRequest request{.method = "rms_norm.forward"};
  static std::vector<client::Tensor> kept;
  kept.push_back(Normal({rows, width}, 1));
  request.inputs.emplace_back("x", kept.back().ref());
  kept.push_back(Normal({width}, 2));
  request.inputs.emplace_back("weight", kept.back().ref());
  return request;
}

client::ParityCheck NormCheck(int64_t rows = 6, int64_t width = 40) {
  client::ParityCheck check{.call = NormCall(rows, width)};
  check.left.backend = "cpu";
  check.right.backend = "cpu";
  check.gradients.emplace();
  return check;
}

server::Options WithPeers(std::vector<std::string> peers) {
  server::Options options = TestOptions();
  options.parity_peers = std::move(peers);
  return options;
}

TEST(ParityCheck, AgreesWithTheReferenceForwardAndBackward) {
  TestServer server;
  const client::Client client = Connect(server);
  client::ParityCheck check = NormCheck();
  check.right.backend = "golden";
  check.judgment = rlk::v1::JUDGMENT_ACCURACY;
  const auto result = client::CheckParity(client, check);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->passed()) << result->DebugString();
  EXPECT_EQ(result->first_difference(), "");
  ASSERT_EQ(result->outputs_size(), 3);
  EXPECT_EQ(result->outputs(0).method() + " " + result->outputs(0).output(), "rms_norm.forward y");
  EXPECT_EQ(result->outputs(1).output(), "grad_x");
  EXPECT_EQ(result->outputs(2).output(), "grad_weight");
  EXPECT_EQ(result->outputs(1).comparison().rule().row(), "gradient_accuracy/reduction/float32");
  EXPECT_EQ(result->compared_elements(), 6 * 40 * 2 + 40);
  ASSERT_EQ(result->left().methods_size(), 2);
  EXPECT_EQ(result->left().methods(1).report().backend(), "cpu");
  EXPECT_EQ(result->right().methods(1).report().backend(), "golden");
  EXPECT_EQ(result->left().provenance().id(), result->right().provenance().id());
  EXPECT_EQ(result->different_versions_size(), 0);
  EXPECT_EQ(result->calls(), 4);
}

TEST(ParityCheck, NamesWhatDiffersBetweenContracts) {
  TestServer server;
  const client::Client client = Connect(server);
  // The two fold rows in other orders: only the gradient of the weight can differ.
  client::ParityCheck check = NormCheck(300);
  check.left.contracts = {"rms_norm/leftfold-v1"};
  check.right.contracts = {"rms_norm/chunk128-v1"};
  const auto result = client::CheckParity(client, check);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->passed());
  EXPECT_EQ(result->first_difference(), "rms_norm.backward grad_weight");
  EXPECT_GT(result->outputs(2).comparison().counts().mismatched(), 0);
  EXPECT_TRUE(result->outputs(2).comparison().has_first_mismatch());
}

TEST(ParityCheck, ComparesWithAnotherServer) {
  TestServer other;
  TestServer server(WithPeers({other.tcp()}));
  const client::Client client = Connect(server);
  client::ParityCheck check = NormCheck();
  check.right.server = other.tcp();
  const auto result = client::CheckParity(client, check);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->passed()) << result->DebugString();
  EXPECT_EQ(result->outputs_size(), 3);
  EXPECT_EQ(result->right().where(), other.tcp());
  EXPECT_EQ(result->right().server_id(), other.server().addresses().server_id);
  EXPECT_NE(result->left().server_id(), result->right().server_id());
  ASSERT_EQ(result->right().methods_size(), 2);
  EXPECT_EQ(result->right().methods(0).report().input_digests_size(), 2);
  EXPECT_EQ(result->right().methods(0).report().input_digests(0).digest(),
            result->left().methods(0).report().input_digests(0).digest());
  EXPECT_EQ(result->different_versions_size(), 0) << "it is the same program";
}

TEST(ParityCheck, SendsLargeInputsToTheOtherServerAndLeavesNothingThere) {
  TestServer other;
  TestServer server(WithPeers({other.tcp()}));
  const client::Client client = Connect(server);
  // 4 MiB in, 4 MiB out: neither fits a message.
  client::ParityCheck check = NormCheck(1024, 1024);
  check.right.server = other.tcp();
  const auto result = client::CheckParity(client, check);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->passed()) << result->DebugString();
  EXPECT_EQ(result->compared_elements(), 2 * 1024 * 1024 + 1024);
  EXPECT_EQ(SeriesValue(Scrape(other.metrics()), "rlk_resident_bytes"), 0);
}

std::vector<std::string> DifferentVersions(void (*change)(rlk::v1::Provenance& right)) {
  rlk::v1::CheckParityResponse response;
  rlk::v1::Provenance& left = *response.mutable_left()->mutable_provenance();
  left.set_id("1");
  left.set_git_commit("abc");
  left.set_cpu_isa("x86-64-v3");
  left.add_cuda_architectures("90a");
  *response.mutable_right()->mutable_provenance() = left;
  change(*response.mutable_right()->mutable_provenance());
  server::FillParity(server::ParityResult(), server::ReportFacts(), response);
  return {response.different_versions().begin(), response.different_versions().end()};
}

TEST(ParityCheck, TellsWhichFactsTheSidesDoNotShare) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(DifferentVersions([](rlk::v1::Provenance&) {}), Names());
  EXPECT_EQ(DifferentVersions([](rlk::v1::Provenance& right) {
              right.set_id("2");
              right.clear_git_commit();
              right.set_cpu_isa("x86-64");
              right.add_cuda_architectures("100");
            }),
            (Names{"git_commit", "cuda_architectures", "cpu_isa"}));
  // The id covers the GPUs too.
  EXPECT_EQ(DifferentVersions([](rlk::v1::Provenance& right) { right.set_id("2"); }),
            Names{"devices"});
}

TEST(ParityCheck, TakesProvidedTensorsAndSaysWhichElementDiffers) {
  TestServer server;
  const client::Client client = Connect(server);
  client::ParityCheck check = NormCheck();
  check.gradients.reset();
  const auto call = client.Call(check.call);
  ASSERT_TRUE(call.ok()) << call.status();
  client::Tensor y = *call->Output("y");
  check.right = {.provided = {{"y", y.ref()}}};
  const auto same = client::CheckParity(client, check);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_TRUE(same->passed());
  EXPECT_EQ(same->right().where(), "provided");
  y.mutable_bytes()[4 * 57] ^= std::byte{1};
  check.right = {.provided = {{"y", y.ref()}}};
  const auto flipped = client::CheckParity(client, check);
  ASSERT_TRUE(flipped.ok()) << flipped.status();
  EXPECT_FALSE(flipped->passed());
  EXPECT_EQ(flipped->outputs(0).comparison().first_mismatch().flat_index(), 57);
  EXPECT_EQ(flipped->outputs(0).comparison().counts().mismatched(), 1);
}

TEST(ParityCheck, InvarianceHoldsOverTheNetwork) {
  TestServer server;
  const client::Client client = Connect(server);
  client::InvarianceCheck check{.call = NormCall(20)};
  check.repeats = 20;
  check.gradients.emplace();
  const auto result = client::CheckInvariance(client, check);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->passed()) << result->DebugString();
  ASSERT_EQ(result->axes_size(), 14);
  for (const auto& axis : result->axes()) {
    EXPECT_TRUE(axis.passed());
    EXPECT_GT(axis.compared_elements(), 0) << axis.DebugString();
  }
}

// What a server of the tests does wrong.
enum class Fault { kOneCallInAThousand, kReadsTheRowBefore };

absl::Status FaultyLaunch(const KernelArgs& args, LaunchFn launch, Fault fault) {
  RLK_RETURN_IF_ERROR(launch(args));
  static std::atomic<int64_t> launches{0};
  float* const y = args.Output("y").as<float>();
  if (fault == Fault::kReadsTheRowBefore) {
    const int64_t count = args.Output("y").elements();
    for (int64_t i = count - 1; i > 0; --i) {
      if (y[i - 1] > 0) y[i] = std::nextafter(y[i], 1e9f);
    }
  } else if (++launches % 1000 == 0) {
    y[0] = std::nextafter(y[0], 1e9f);
  }
  return absl::OkStatus();
}

// All operators; final_logit_softcap.forward of the cpu has the fault.
template <Fault kFault>
void FillFaulty(Registry& registry) {
  static LaunchFn launch = nullptr;
  registry.SetBackend(Backend::kCpu, {.available = true, .reason = ""});
  registry.SetBackend(Backend::kGolden, {.available = true, .reason = ""});
  for (MethodDecl& decl : DeclareFinalLogitSoftcap()) {
    for (Variant& variant : decl.variants) {
      if (decl.method != "final_logit_softcap.forward" || variant.backend != Backend::kCpu)
        continue;
      launch = variant.launch;
      variant.launch = [](const KernelArgs& args) { return FaultyLaunch(args, launch, kFault); };
    }
    registry.Add(std::move(decl));
  }
  for (auto declare : {DeclareRmsNorm, DeclareDetLinear, DeclareTimestepMlpFp32}) {
    for (MethodDecl& decl : declare()) registry.Add(std::move(decl));
  }
  for (MethodDecl& decl : DeclareTimestepSinusoidH3(true)) registry.Add(std::move(decl));
  for (MethodDecl& decl : DeclareAdalnProjection3Mod(true)) registry.Add(std::move(decl));
}

server::ServerHooks Hooks(void (*fill)(Registry&)) {
  server::ServerHooks hooks;
  hooks.fill_registry = fill;
  return hooks;
}

client::CallRequest SoftcapCall(const client::Tensor& x) {
  client::CallRequest request{.method = "final_logit_softcap.forward"};
  request.inputs = {{"x", x.ref()}};
  return request;
}

TEST(ParityCheck, FindsAKernelThatDiffersOnOneCallInAThousand) {
  TestServer server(TestOptions(), Hooks(FillFaulty<Fault::kOneCallInAThousand>));
  const client::Client client = Connect(server);
  const client::Tensor x = Normal({8, 5}, 3);
  client::InvarianceCheck check{.call = SoftcapCall(x)};
  check.axes = {rlk::v1::INVARIANCE_AXIS_REPEAT};
  const auto result = client::CheckInvariance(client, check);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->passed());
  const auto& difference = result->axes(0).difference();
  EXPECT_EQ(difference.comparison().counts().mismatched(), 1);
  EXPECT_EQ(difference.comparison().first_mismatch().flat_index(), 0);
  EXPECT_EQ(difference.comparison().triage().triage_class(), rlk::v1::TRIAGE_CLASS_NOT_REPEATABLE);
}

TEST(ParityCheck, FindsAKernelThatReadsItsNeighbour) {
  TestServer server(TestOptions(), Hooks(FillFaulty<Fault::kReadsTheRowBefore>));
  const client::Client client = Connect(server);
  const client::Tensor x = Normal({64}, 4);
  client::InvarianceCheck check{.call = SoftcapCall(x)};
  const auto result = client::CheckInvariance(client, check);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->passed());
  for (const auto& axis : result->axes()) {
    const bool same_call = axis.axis() == rlk::v1::INVARIANCE_AXIS_REPEAT;
    EXPECT_TRUE(!same_call || axis.passed());
    if (axis.axis() == rlk::v1::INVARIANCE_AXIS_NEIGHBOURS ||
        axis.axis() == rlk::v1::INVARIANCE_AXIS_PERMUTE) {
      EXPECT_FALSE(axis.passed());
      EXPECT_EQ(axis.difference().comparison().triage().triage_class(),
                rlk::v1::TRIAGE_CLASS_BATCH_DEPENDENT);
    }
  }
}

TEST(ParityCheck, AFaultOfOneServerIsADifferenceBetweenTheTwo) {
  TestServer other(TestOptions(), Hooks(FillFaulty<Fault::kReadsTheRowBefore>));
  TestServer server(WithPeers({other.tcp()}));
  const client::Client client = Connect(server);
  const client::Tensor x = Normal({64}, 4);
  client::ParityCheck check{.call = SoftcapCall(x)};
  check.right.server = other.tcp();
  const auto result = client::CheckParity(client, check);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->passed());
  EXPECT_EQ(result->first_difference(), "final_logit_softcap.forward y");
  EXPECT_EQ(result->outputs(0).comparison().ulp().max(), 1);
}

// Also where an error came by way of another server, its text says each thing once.
ErrorDetail Refused(const client::Client& client, const client::ParityCheck& check,
                    absl::StatusCode code) {
  const absl::Status status = client::CheckParity(client, check).status();
  EXPECT_EQ(status.code(), code) << status;
  const ErrorDetail detail = GetErrorDetail(status).value_or(ErrorDetail{});
  for (const std::string& once : {detail.field + ": ", std::string("; allowed: ")}) {
    const size_t first = status.message().find(once);
    EXPECT_NE(first, absl::string_view::npos) << status;
    EXPECT_EQ(status.message().find(once, first + 1), absl::string_view::npos) << status;
  }
  return detail;
}

TEST(ParityCheck, CallsNobodyWhoIsNotListed) {
  TestServer other;
  TestServer server;
  client::ParityCheck check = NormCheck();
  check.right.server = other.tcp();
  const ErrorDetail detail = Refused(Connect(server), check, absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(detail.reason, Reason::kPeerNotListed);
  EXPECT_EQ(detail.field, "right.server");
  EXPECT_EQ(detail.value, other.tcp());
}

TEST(ParityCheck, SaysWhichSideCannotBeReached) {
  const DeafSocket nobody(/*listening=*/false);
  TestServer server(WithPeers({nobody.address()}));
  client::ParityCheck check = NormCheck();
  check.left = {.server = nobody.address()};
  const ErrorDetail detail = Refused(Connect(server), check, absl::StatusCode::kUnavailable);
  EXPECT_EQ(detail.reason, Reason::kPeerUnreachable);
  EXPECT_EQ(detail.field, "left.server");
  EXPECT_EQ(detail.value, nobody.address());
}

TEST(ParityCheck, SaysWhichSideDoesNotAnswer) {
  const DeafSocket deaf(/*listening=*/true);
  server::Options options = WithPeers({deaf.address()});
  options.limits.parity_peer_ms_max = 200;
  TestServer server(options);
  client::ParityCheck check = NormCheck();
  check.right.server = deaf.address();
  // The caller names no deadline: the server's own bound is what ends it.
  const ErrorDetail detail = Refused(Connect(server), check, absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(detail.reason, Reason::kDeadlineExceeded);
  EXPECT_EQ(detail.field, "right.server");
  EXPECT_EQ(detail.value, deaf.address());
}

TEST(ParityCheck, APeersRefusalIsTheSidesError) {
  server::Options cpu_alone = TestOptions();
  cpu_alone.backends = {Backend::kCpu};
  TestServer other(cpu_alone);
  TestServer server(WithPeers({other.tcp()}));
  client::ParityCheck check = NormCheck();
  check.right = {.backend = "golden", .server = other.tcp()};
  const ErrorDetail detail = Refused(Connect(server), check, absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(detail.reason, Reason::kBackendUnavailable);
  EXPECT_EQ(detail.field, "right.server.options.backend");
}

constexpr int64_t kHourMs = 3'600'000;

TEST(ParityCheck, EndsWhenItsCallerGoes) {
  DeafSocket deaf(/*listening=*/true);
  server::Options options = WithPeers({deaf.address()});
  options.limits.parity_peer_ms_max = kHourMs;
  TestServer server(options);
  StuckChecks checks(server, deaf.address(), 1);
  deaf.Greet();
  checks.Cancel();
  checks.AwaitEnded(1);
  // The check has ended too: a drain would wait an hour for it.
  EXPECT_TRUE(server.server().Drain(0, 3000));
}

TEST(ParityCheck, RefusesMoreChecksThanMayWait) {
  const DeafSocket deaf(/*listening=*/true);
  server::Options options = WithPeers({deaf.address()});
  options.limits.parity_peer_ms_max = kHourMs;
  TestServer server(options);
  // Two run and 32 wait.
  constexpr int kRoom = 34, kMore = 6;
  StuckChecks checks(server, deaf.address(), kRoom + kMore);
  checks.AwaitEnded(kMore);
  for (const grpc::Status& status : checks.ended()) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    const ErrorFacts facts = FactsOf(status);
    EXPECT_EQ(facts.reason, "QUEUE_FULL");
    EXPECT_TRUE(facts.has_retry_info);
  }
  checks.Cancel();
  checks.AwaitEnded(kRoom + kMore);
}

// Whether the callers hear of it before the end of the transport is the machine's; either way they
// may repeat their checks elsewhere.
TEST(ParityCheck, TheEndOfADrainEndsChecksThatWait) {
  DeafSocket deaf(/*listening=*/true);
  server::Options options = WithPeers({deaf.address()});
  options.limits.parity_peer_ms_max = kHourMs;
  TestServer server(options);
  // Two run, the others wait for their turn.
  constexpr int kChecks = 8;
  StuckChecks checks(server, deaf.address(), kChecks);
  deaf.Greet();
  server.server().Drain(0, 1);
  checks.AwaitEnded(kChecks);
  for (const grpc::Status& status : checks.ended()) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
  }
  // The one that was under way was told, not cut off.
  constexpr char kTold[] = "rlk_admission_rejections_total{reason=\"DRAINING\"}";
  while (SeriesValue(Scrape(server.metrics()), kTold) < 1) std::this_thread::yield();
}

}  // namespace
}  // namespace rlk::test
