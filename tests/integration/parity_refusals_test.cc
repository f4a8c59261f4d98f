// What CheckParity refuses, and the field that it names.
#include <chrono>

#include "rlk/v1/parity.grpc.pb.h"
#include "server/rpc/peer_call.h"
#include "tests/integration/fixture.h"

namespace rlk::test {
namespace {

TEST(PeerTime, LeavesTheErrorTimeToArrive) {
  using std::chrono::milliseconds;
  using std::chrono::steady_clock;
  const steady_clock::time_point now = steady_clock::now();
  const auto peer_time = [now](int64_t left_ms, int64_t most_ms) {
    return server::PeerTime(now + milliseconds(left_ms), now, milliseconds(most_ms)).count();
  };
  EXPECT_EQ(peer_time(1000, 60'000), 900);
  EXPECT_EQ(peer_time(10, 60'000), 9);
  EXPECT_EQ(peer_time(1, 60'000), 1);
  EXPECT_EQ(peer_time(100'000, 60'000), 60'000);
  EXPECT_EQ(peer_time(-5, 60'000), 0);
  EXPECT_EQ(server::PeerTime(steady_clock::time_point::max(), now, milliseconds(60'000)).count(),
            60'000);
}

struct RefusalCase {
  const char* name;
  void (*change)(rlk::v1::CheckParityRequest& request);
  grpc::StatusCode code;
  const char* reason;
  const char* field;
};

class ParityRefusal : public testing::TestWithParam<RefusalCase> {};

TEST_P(ParityRefusal, NamesTheField) {
  TestServer server;
  const auto stub = rlk::v1::ParityService::NewStub(DefaultChannel(server.tcp()));
  rlk::v1::CheckParityRequest request;
  request.mutable_invocation()->set_method("final_logit_softcap.forward");
  request.mutable_invocation()->mutable_request()->PackFrom(ForwardRequest());
  GetParam().change(request);
  grpc::ClientContext context;
  rlk::v1::CheckParityResponse response;
  const grpc::Status status = stub->CheckParity(&context, request, &response);
  EXPECT_EQ(status.error_code(), GetParam().code) << status.error_message();
  const ErrorFacts facts = FactsOf(status);
  EXPECT_EQ(facts.reason, GetParam().reason);
  EXPECT_EQ(facts.metadata.at("field"), GetParam().field);
}

constexpr grpc::StatusCode kInvalid = grpc::StatusCode::INVALID_ARGUMENT;

void PackSoftcap(rlk::v1::CheckParityRequest& request,
                 const rlk::v1::FinalLogitSoftcapForwardRequest& call) {
  request.mutable_invocation()->mutable_request()->PackFrom(call);
}

// The side is what somebody else computed.
rlk::v1::ParitySide* Provide(rlk::v1::ParitySide& side) {
  rlk::v1::NamedTensor& y = *side.add_provided();
  y.set_name("y");
  *y.mutable_tensor() = ForwardRequest().x();
  return &side;
}

INSTANTIATE_TEST_SUITE_P(
    Requests, ParityRefusal,
    testing::Values(
        RefusalCase{"UnknownMethod",
                    [](rlk::v1::CheckParityRequest& request) {
                      request.mutable_invocation()->set_method("nobody.forward");
                    },
                    kInvalid, "UNKNOWN_OPERATOR", "invocation.method"},
        RefusalCase{"RequestOfAnotherMethod",
                    [](rlk::v1::CheckParityRequest& request) {
                      request.mutable_invocation()->mutable_request()->PackFrom(BackwardRequest());
                    },
                    kInvalid, "MALFORMED_MESSAGE", "invocation.request"},
        RefusalCase{"MoreThan64KiBInline",
                    [](rlk::v1::CheckParityRequest& request) {
                      PackSoftcap(request, ForwardOfSize(16385));
                    },
                    kInvalid, "MESSAGE_TOO_LARGE", "x"},
        RefusalCase{"OptionsThatPlaceOutputs",
                    [](rlk::v1::CheckParityRequest& request) {
                      auto call = ForwardRequest();
                      (*call.mutable_options()->mutable_outputs())["y"].mutable_resident();
                      PackSoftcap(request, call);
                    },
                    kInvalid, "UNKNOWN_OPTION", "invocation.request.options.outputs"},
        RefusalCase{"UnknownContract",
                    [](rlk::v1::CheckParityRequest& request) {
                      request.mutable_left()->add_contracts("nobody/v1");
                    },
                    kInvalid, "UNKNOWN_CONTRACT", "left.contracts"},
        RefusalCase{"UnknownBackend",
                    [](rlk::v1::CheckParityRequest& request) {
                      request.mutable_right()->set_backend("abacus");
                    },
                    kInvalid, "UNKNOWN_BACKEND", "right.options.backend"},
        RefusalCase{"ProvidedTensorWithFewerBytes",
                    [](rlk::v1::CheckParityRequest& request) {
                      rlk::v1::ParitySide* side = Provide(*request.mutable_left());
                      side->mutable_provided(0)->mutable_tensor()->mutable_data()->pop_back();
                    },
                    kInvalid, "PAYLOAD_SIZE_MISMATCH", "left.provided.y.data"},
        RefusalCase{"BackendBesideProvidedTensors",
                    [](rlk::v1::CheckParityRequest& request) {
                      Provide(*request.mutable_left())->set_backend("abacus");
                    },
                    kInvalid, "UNKNOWN_OPTION", "left.backend"},
        RefusalCase{
            "ContractBesideProvidedTensors",
            [](rlk::v1::CheckParityRequest& request) {
              Provide(*request.mutable_right())->add_contracts("final_logit_softcap/portable-v1");
            },
            kInvalid, "UNKNOWN_OPTION", "right.contracts"},
        RefusalCase{"DeviceBesideProvidedTensors",
                    [](rlk::v1::CheckParityRequest& request) {
                      Provide(*request.mutable_right())->set_device_uuid("GPU-0");
                    },
                    kInvalid, "UNKNOWN_OPTION", "right.device_uuid"},
        RefusalCase{"ModeBesideProvidedTensors",
                    [](rlk::v1::CheckParityRequest& request) {
                      Provide(*request.mutable_right())->set_mode(rlk::v1::MODE_AUTO);
                    },
                    kInvalid, "UNKNOWN_OPTION", "right.mode"},
        RefusalCase{"ServerBesideProvidedTensors",
                    [](rlk::v1::CheckParityRequest& request) {
                      Provide(*request.mutable_left())->set_server("127.0.0.1:1");
                    },
                    kInvalid, "UNKNOWN_OPTION", "left.server"},
        RefusalCase{"UnknownJudgment",
                    [](rlk::v1::CheckParityRequest& request) {
                      request.set_judgment(static_cast<rlk::v1::Judgment>(77));
                    },
                    kInvalid, "UNKNOWN_ENUM_VALUE", "judgment"},
        RefusalCase{"AccuracyWithoutTheReference",
                    [](rlk::v1::CheckParityRequest& request) {
                      request.set_judgment(rlk::v1::JUDGMENT_ACCURACY);
                    },
                    kInvalid, "UNKNOWN_OPTION", "judgment"},
        RefusalCase{"GradientThatNobodyTakes",
                    [](rlk::v1::CheckParityRequest& request) {
                      auto& given = *request.mutable_gradients()->add_given();
                      given.set_name("grad_z");
                      *given.mutable_tensor() = ForwardRequest().x();
                    },
                    kInvalid, "UNEXPECTED_TENSOR", "gradients.given.grad_z"},
        RefusalCase{"AttributeOutOfRange",
                    [](rlk::v1::CheckParityRequest& request) {
                      auto call = ForwardRequest();
                      call.set_softcap(-1);
                      PackSoftcap(request, call);
                    },
                    kInvalid, "ATTRIBUTE_OUT_OF_RANGE", "left.softcap"},
        RefusalCase{"ResidentTensorWithoutASession",
                    [](rlk::v1::CheckParityRequest& request) {
                      auto call = ForwardRequest();
                      call.mutable_x()->mutable_resident()->set_id("0123456789abcdef");
                      PackSoftcap(request, call);
                    },
                    grpc::StatusCode::UNAUTHENTICATED, "UNAUTHENTICATED", "x"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace rlk::test
