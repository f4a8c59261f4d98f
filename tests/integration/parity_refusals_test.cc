// What CheckParity refuses, and the field that it names.
#include "rlk/v1/parity.grpc.pb.h"
#include "tests/integration/fixture.h"

namespace rlk::test {
namespace {

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

INSTANTIATE_TEST_SUITE_P(
    Requests, ParityRefusal,
    testing::Values(RefusalCase{"UnknownMethod",
                                [](rlk::v1::CheckParityRequest& request) {
                                  request.mutable_invocation()->set_method("nobody.forward");
                                },
                                kInvalid, "UNKNOWN_OPERATOR", "invocation.method"},
                    RefusalCase{"RequestOfAnotherMethod",
                                [](rlk::v1::CheckParityRequest& request) {
                                  request.mutable_invocation()->mutable_request()->PackFrom(
                                      BackwardRequest());
                                },
                                kInvalid, "MALFORMED_MESSAGE", "invocation.request"},
                    RefusalCase{"MoreThan64KiBInline",
                                [](rlk::v1::CheckParityRequest& request) {
                                  PackSoftcap(request, ForwardOfSize(16385));
                                },
                                kInvalid, "MESSAGE_TOO_LARGE", "x"},
                    RefusalCase{
                        "OptionsThatPlaceOutputs",
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
