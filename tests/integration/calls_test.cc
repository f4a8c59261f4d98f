// Calls over TCP and the Unix socket with default channels.
#include <chrono>
#include <cmath>
#include <thread>

#include "kernels/digest/digest.h"
#include "tests/integration/fixture.h"

namespace rlk::test {
namespace {

using rlk::v1::ActivationService;
using rlk::v1::FinalLogitSoftcapBackwardResponse;
using rlk::v1::FinalLogitSoftcapForwardRequest;
using rlk::v1::FinalLogitSoftcapForwardResponse;

server::Options WithUnixSocket(const TempDir& dir) {
  server::Options options = TestOptions();
  options.unix_path = dir.File("rlk.sock");
  return options;
}

grpc::Status Forward(ActivationService::Stub& stub, const FinalLogitSoftcapForwardRequest& request,
                     FinalLogitSoftcapForwardResponse& response) {
  grpc::ClientContext context;
  return stub.FinalLogitSoftcapForward(&context, request, &response);
}

// Of the record that ServerService gives whole.
std::string ProvenanceId(const std::string& target) {
  const auto stub = rlk::v1::ServerService::NewStub(DefaultChannel(target));
  grpc::ClientContext context;
  rlk::v1::GetInfoResponse info;
  EXPECT_TRUE(stub->GetInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.provenance().id().size(), 32u);
  return info.provenance().id();
}

TEST(CallsTest, ForwardAndBackwardOverTcpAndUnixSocket) {
  TempDir dir;
  TestServer server(WithUnixSocket(dir));
  const std::vector<float> x = FloatsOf(ForwardRequest().x().data());
  const std::vector<float> g = FloatsOf(BackwardRequest().grad_y().data());
  std::vector<std::string> bytes;
  for (const std::string& target : {server.tcp(), server.unix_target()}) {
    SCOPED_TRACE(target);
    const auto stub = ActivationService::NewStub(DefaultChannel(target));
    FinalLogitSoftcapForwardResponse forward;
    ASSERT_TRUE(Forward(*stub, ForwardRequest(), forward).ok());
    EXPECT_EQ(forward.y().dtype(), rlk::v1::DATA_TYPE_F32);
    EXPECT_EQ(forward.y().shape_size(), 2);
    const std::vector<float> y = FloatsOf(forward.y().data());
    ASSERT_EQ(y.size(), x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(y[i], 20 * std::tanh(x[i] / 20.0), 1e-5) << i;
    }
    EXPECT_TRUE(std::signbit(y[2])) << "the sign of zero is kept";
    EXPECT_EQ(forward.report().backend(), "cpu");
    EXPECT_EQ(forward.report().attributes().at("softcap").number(), 20);
    EXPECT_EQ(forward.report().provenance_id(), ProvenanceId(target));
    EXPECT_GT(forward.report().phases().kernel_ns(), 0);
    EXPECT_GT(forward.report().phases().receive_ns(), 0);

    grpc::ClientContext context;
    FinalLogitSoftcapBackwardResponse backward;
    ASSERT_TRUE(stub->FinalLogitSoftcapBackward(&context, BackwardRequest(), &backward).ok());
    const std::vector<float> grad = FloatsOf(backward.grad_x().data());
    ASSERT_EQ(grad.size(), x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const double slope = 1 / std::pow(std::cosh(std::min(std::fabs(x[i]) / 20.0, 300.0)), 2);
      EXPECT_NEAR(grad[i], g[i] * slope, 1e-5) << i;
    }
    bytes.push_back(forward.y().data() + backward.grad_x().data());
  }
  EXPECT_EQ(bytes[0], bytes[1]);
}

TEST(CallsTest, EmptyAndScalarTensorsWork) {
  TestServer server;
  const auto stub = ActivationService::NewStub(DefaultChannel(server.tcp()));
  FinalLogitSoftcapForwardRequest request;
  FinalLogitSoftcapForwardResponse response;
  request.mutable_x()->set_dtype(rlk::v1::DATA_TYPE_BF16);
  request.mutable_x()->set_data(std::string("\x80\x3f", 2));
  ASSERT_TRUE(Forward(*stub, request, response).ok());
  EXPECT_EQ(response.y().shape_size(), 0);
  EXPECT_NEAR(FloatsOf(response.y().data()).at(0), 30 * std::tanh(1 / 30.0), 1e-6);
  request.mutable_x()->add_shape(0);
  request.mutable_x()->set_data("");
  ASSERT_TRUE(Forward(*stub, request, response).ok());
  EXPECT_EQ(response.y().shape(0), 0);
  EXPECT_EQ(response.y().data(), "");
}

TEST(CallsTest, LargestInlineMessagePassesADefaultChannel) {
  TestServer server;
  const auto stub = ActivationService::NewStub(DefaultChannel(server.tcp()));
  // 2 MiB less what the message needs beside its payload.
  const FinalLogitSoftcapForwardRequest request = ForwardOfSize((1 << 19) - 64);
  FinalLogitSoftcapForwardResponse response;
  const grpc::Status status = Forward(*stub, request, response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.y().data().size(), request.x().data().size());
}

TEST(CallsTest, ReportsDigestsOfWhatWasSentAndComputed) {
  TestServer server;
  const auto stub = ActivationService::NewStub(DefaultChannel(server.tcp()));
  FinalLogitSoftcapForwardRequest request = ForwardRequest();
  request.mutable_options()->add_digests(rlk::v1::DIGEST_SCOPE_TENSOR);
  request.mutable_options()->add_digests(rlk::v1::DIGEST_SCOPE_ROWS);
  FinalLogitSoftcapForwardResponse response;
  ASSERT_TRUE(Forward(*stub, request, response).ok());
  const auto digest = [](const std::string& data) {
    const Dims shape = {2, 3};
    return ComputeDigest({DType::kF32, shape, ContiguousStrides(shape), data.data()}).Text();
  };
  ASSERT_EQ(response.report().input_digests_size(), 1);
  ASSERT_EQ(response.report().output_digests_size(), 1);
  EXPECT_EQ(response.report().input_digests(0).digest(), digest(request.x().data()));
  EXPECT_EQ(response.report().output_digests(0).digest(), digest(response.y().data()));
  EXPECT_EQ(response.report().output_digests(0).rows().size(), 2u * 16u);
  EXPECT_EQ(response.report().input_capture(), rlk::v1::INPUT_CAPTURE_SNAPSHOT);
}

TEST(CallsTest, RepeatAndReferenceVerify) {
  TestServer server;
  const auto stub = ActivationService::NewStub(DefaultChannel(server.tcp()));
  for (const auto kind : {rlk::v1::VERIFICATION_REPEAT, rlk::v1::VERIFICATION_REFERENCE}) {
    SCOPED_TRACE(rlk::v1::Verification_Name(kind));
    FinalLogitSoftcapForwardRequest request = ForwardOfSize(1000);
    request.mutable_options()->set_verification(kind);
    FinalLogitSoftcapForwardResponse response;
    ASSERT_TRUE(Forward(*stub, request, response).ok());
    const rlk::v1::VerificationResult& result = response.report().verification();
    EXPECT_EQ(result.verification(), kind);
    EXPECT_TRUE(result.passed());
    ASSERT_EQ(result.outputs_size(), 1);
    EXPECT_EQ(result.outputs(0).compared_elements(), 1000);
    EXPECT_EQ(result.outputs(0).mismatched_elements(), 0);
    const bool reference = kind == rlk::v1::VERIFICATION_REFERENCE;
    EXPECT_EQ(result.tolerance_contract_sha256().size(), reference ? 64u : 0u);
  }
}

TEST(CallsTest, ConcurrentClientsGetEqualBytes) {
  TempDir dir;
  TestServer server(WithUnixSocket(dir));
  FinalLogitSoftcapForwardResponse alone;
  const auto first = ActivationService::NewStub(DefaultChannel(server.tcp()));
  ASSERT_TRUE(Forward(*first, ForwardOfSize(30000), alone).ok());
  constexpr int kClients = 6, kCalls = 20;
  std::atomic<int> equal = 0;
  std::vector<std::thread> clients;
  for (int c = 0; c < kClients; ++c) {
    clients.emplace_back([&, c] {
      const std::string target = c % 2 ? server.tcp() : server.unix_target();
      const auto stub = ActivationService::NewStub(DefaultChannel(target));
      for (int i = 0; i < kCalls; ++i) {
        FinalLogitSoftcapForwardResponse response;
        const grpc::Status status = Forward(*stub, ForwardOfSize(30000), response);
        if (status.ok() && response.y().data() == alone.y().data()) ++equal;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(equal, kClients * kCalls);
}

TEST(CallsTest, EchoesTraceparent) {
  TestServer server;
  const auto stub = ActivationService::NewStub(DefaultChannel(server.tcp()));
  const std::string good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const struct {
    std::string header;
    bool echoed;
  } cases[] = {{good, true}, {"00-zz", false}, {good + "-extra", false}};
  for (const auto& c : cases) {
    for (const bool succeeds : {true, false}) {
      SCOPED_TRACE(c.header);
      grpc::ClientContext context;
      context.AddMetadata("traceparent", c.header);
      FinalLogitSoftcapForwardRequest request = ForwardRequest();
      if (!succeeds) request.set_softcap(-1);
      FinalLogitSoftcapForwardResponse response;
      EXPECT_EQ(stub->FinalLogitSoftcapForward(&context, request, &response).ok(), succeeds);
      const auto& trailers = context.GetServerTrailingMetadata();
      const auto found = trailers.find("traceparent");
      ASSERT_EQ(found != trailers.end(), c.echoed);
      if (c.echoed) {
        EXPECT_EQ(std::string(found->second.data(), found->second.size()), good);
      }
    }
  }
}

}  // namespace
}  // namespace rlk::test
