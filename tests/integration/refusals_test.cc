// Each part of each request, made wrong once: the call is refused with the right code, reason and
// field, and the server goes on.
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/core/status.h"
#include "tests/integration/fixture.h"

namespace rlk::test {
namespace {

using rlk::v1::FinalLogitSoftcapBackwardRequest;
using rlk::v1::FinalLogitSoftcapForwardRequest;

constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
constexpr auto kNoSession = grpc::StatusCode::UNAUTHENTICATED;
constexpr auto kPrecondition = grpc::StatusCode::FAILED_PRECONDITION;

template <typename Request>
struct Case {
  const char* name;
  std::function<void(Request&)> break_it;
  grpc::StatusCode code;
  Reason reason;
  const char* field;
};

grpc::Status Send(rlk::v1::ActivationService::Stub& stub,
                  const FinalLogitSoftcapForwardRequest& r) {
  grpc::ClientContext context;
  rlk::v1::FinalLogitSoftcapForwardResponse response;
  return stub.FinalLogitSoftcapForward(&context, r, &response);
}

grpc::Status Send(rlk::v1::ActivationService::Stub& stub,
                  const FinalLogitSoftcapBackwardRequest& r) {
  grpc::ClientContext context;
  rlk::v1::FinalLogitSoftcapBackwardResponse response;
  return stub.FinalLogitSoftcapBackward(&context, r, &response);
}

void ExpectRefusal(const grpc::Status& status, grpc::StatusCode code, Reason reason,
                   const std::string& field) {
  EXPECT_EQ(status.error_code(), code) << status.error_message();
  const ErrorFacts facts = FactsOf(status);
  EXPECT_TRUE(facts.has_error_info);
  EXPECT_EQ(facts.domain, "rlk");
  EXPECT_EQ(facts.reason, ReasonName(reason)) << status.error_message();
  for (const char* key : {"field", "value", "allowed"}) {
    EXPECT_EQ(facts.metadata.count(key), 1u) << key << ": " << status.error_message();
  }
  const auto found = facts.metadata.find("field");
  EXPECT_EQ(found == facts.metadata.end() ? "" : found->second, field) << status.error_message();
  if (code == kInvalid) {
    EXPECT_EQ(facts.violated_field, field);
  }
  EXPECT_LT(status.error_details().size(), 6u << 10);
  EXPECT_FALSE(status.error_message().empty());
  // Nothing about a request gets better with time.
  EXPECT_FALSE(facts.has_retry_info);
}

template <typename Request>
void RunTable(const Request& good, const std::vector<Case<Request>>& cases) {
  TestServer server;
  const auto stub = rlk::v1::ActivationService::NewStub(DefaultChannel(server.tcp()));
  ASSERT_TRUE(Send(*stub, good).ok());
  for (const Case<Request>& c : cases) {
    SCOPED_TRACE(c.name);
    Request request = good;
    c.break_it(request);
    ExpectRefusal(Send(*stub, request), c.code, c.reason, c.field);
    EXPECT_TRUE(Send(*stub, good).ok()) << "the server does not go on";
  }
}

// The cases of one input tensor and of the options, which are alike in every method.
template <typename Request>
std::vector<Case<Request>> TensorCases(rlk::v1::Tensor* (Request::*tensor)(), const char* field) {
  static std::vector<std::string> names;
  names.reserve(64);
  const auto sub = [&](const char* part) {
    names.push_back(std::string(field) + part);
    return names.back().c_str();
  };
  const auto at = [tensor](std::function<void(rlk::v1::Tensor&)> change) {
    return [=](Request& r) { change(*(r.*tensor)()); };
  };
  std::vector<Case<Request>> cases = {
      {"dtype unspecified", at([](auto& t) { t.clear_dtype(); }), kInvalid,
       Reason::kDtypeNotAllowed, field},
      {"dtype F64", at([](auto& t) {
         t.set_dtype(rlk::v1::DATA_TYPE_F64);
         t.set_data(std::string(48, '\0'));
       }),
       kInvalid, Reason::kDtypeNotAllowed, field},
      {"dtype I32", at([](auto& t) { t.set_dtype(rlk::v1::DATA_TYPE_I32); }), kInvalid,
       Reason::kDtypeNotAllowed, field},
      {"dtype unknown", at([](auto& t) { t.set_dtype(static_cast<rlk::v1::DataType>(99)); }),
       kInvalid, Reason::kUnknownEnumValue, sub(".dtype")},
      {"rank 9", at([](auto& t) {
         while (t.shape_size() < 9) t.add_shape(1);
       }),
       kInvalid, Reason::kRankTooLarge, sub(".shape")},
      {"negative size", at([](auto& t) { t.set_shape(1, -3); }), kInvalid, Reason::kShapeMismatch,
       sub(".shape[1]")},
      {"size beyond 64 bits", at([](auto& t) {
         t.set_shape(0, int64_t{1} << 40);
         t.set_shape(1, int64_t{1} << 40);
       }),
       kInvalid, Reason::kLimitExceeded, sub(".shape")},
      {"too few strides", at([](auto& t) { t.add_strides(3); }), kInvalid, Reason::kInvalidStrides,
       sub(".strides")},
      {"negative stride", at([](auto& t) {
         t.add_strides(3);
         t.add_strides(-1);
       }),
       kInvalid, Reason::kInvalidStrides, sub(".strides[1]")},
      {"strides of another payload", at([](auto& t) {
         t.add_strides(4);
         t.add_strides(1);
       }),
       kInvalid, Reason::kPayloadSizeMismatch, sub(".data")},
      {"payload one byte short", at([](auto& t) { t.mutable_data()->pop_back(); }), kInvalid,
       Reason::kPayloadSizeMismatch, sub(".data")},
      {"payload one byte long", at([](auto& t) { t.mutable_data()->push_back('\0'); }), kInvalid,
       Reason::kPayloadSizeMismatch, sub(".data")},
      {"no source", at([](auto& t) { t.clear_source(); }), kInvalid, Reason::kMissingTensor, field},
      {"resident source", at([](auto& t) { t.mutable_resident()->set_id(std::string(16, 'a')); }),
       kNoSession, Reason::kUnauthenticated, field},
      {"arena source", at([](auto& t) { t.mutable_arena()->set_arena(std::string(16, 'a')); }),
       kNoSession, Reason::kUnauthenticated, field},
  };
  return cases;
}

template <typename Request>
std::vector<Case<Request>> OptionCases(const char* output) {
  const auto at = [](std::function<void(rlk::v1::CallOptions&)> change) {
    return [=](Request& r) { change(*r.mutable_options()); };
  };
  const std::string name = output;
  return {
      {"unknown contract", at([](auto& o) { o.set_contract("final_logit_softcap/other-v9"); }),
       kInvalid, Reason::kUnknownContract, "options.contract"},
      {"contract text too long", at([](auto& o) { o.set_contract(std::string(300, 'c')); }),
       kInvalid, Reason::kLimitExceeded, "options.contract"},
      {"unknown backend", at([](auto& o) { o.set_backend("abacus"); }), kInvalid,
       Reason::kUnknownBackend, "options.backend"},
      {"backend without device", at([](auto& o) { o.set_backend("cuda_sm90"); }), kPrecondition,
       Reason::kBackendUnavailable, "options.backend"},
      {"unknown mode", at([](auto& o) { o.set_mode(static_cast<rlk::v1::Mode>(7)); }), kInvalid,
       Reason::kUnknownEnumValue, "options.mode"},
      {"unknown claim",
       at([](auto& o) { o.set_minimum_claim(static_cast<rlk::v1::ClaimLevel>(9)); }), kInvalid,
       Reason::kUnknownEnumValue, "options.minimum_claim"},
      {"unknown device", at([](auto& o) { o.set_device_uuid("GPU-none"); }), kPrecondition,
       Reason::kDeviceNotFound, "options.device_uuid"},
      {"placement of an unknown output",
       at([](auto& o) { (*o.mutable_outputs())["z"].mutable_inline_(); }), kInvalid,
       Reason::kUnknownOutput, "options.outputs"},
      {"placement that needs a session",
       at([name](auto& o) { (*o.mutable_outputs())[name].mutable_resident(); }), kNoSession,
       Reason::kUnauthenticated, name == "y" ? "options.outputs.y" : "options.outputs.grad_x"},
      {"unknown digest scope",
       at([](auto& o) { o.add_digests(static_cast<rlk::v1::DigestScope>(5)); }), kInvalid,
       Reason::kUnknownEnumValue, "options.digests[0]"},
      {"unknown capture",
       at([](auto& o) { o.set_input_capture(static_cast<rlk::v1::InputCapture>(5)); }), kInvalid,
       Reason::kUnknownEnumValue, "options.input_capture"},
      {"unknown verification",
       at([](auto& o) { o.set_verification(static_cast<rlk::v1::Verification>(5)); }), kInvalid,
       Reason::kUnknownEnumValue, "options.verification"},
      {"unknown output wanted", at([](auto& o) { o.add_wanted_outputs("z"); }), kInvalid,
       Reason::kUnknownOutput, "options.wanted_outputs"},
  };
}

template <typename Request>
std::vector<Case<Request>> SoftcapCases() {
  std::vector<Case<Request>> cases;
  for (const double bad :
       {0.0, -0.0, -1.0, 1e-46, 1e39, -1e39, std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    cases.push_back({"softcap out of range", [bad](Request& r) { r.set_softcap(bad); }, kInvalid,
                     Reason::kAttributeOutOfRange, "softcap"});
  }
  return cases;
}

template <typename T>
void Append(std::vector<T>& to, std::vector<T> from) {
  to.insert(to.end(), from.begin(), from.end());
}

TEST(RefusalsTest, ForwardRefusesEachWrongPart) {
  using Request = FinalLogitSoftcapForwardRequest;
  std::vector<Case<Request>> cases = TensorCases<Request>(&Request::mutable_x, "x");
  Append(cases, SoftcapCases<Request>());
  Append(cases, OptionCases<Request>("y"));
  cases.push_back(
      {"x missing", [](Request& r) { r.clear_x(); }, kInvalid, Reason::kMissingTensor, "x"});
  cases.push_back({"output dtype not offered",
                   [](Request& r) { r.set_output_dtype(rlk::v1::DATA_TYPE_F64); }, kInvalid,
                   Reason::kDtypeNotAllowed, "output_dtype"});
  cases.push_back({"output dtype of another input dtype",
                   [](Request& r) { r.set_output_dtype(rlk::v1::DATA_TYPE_BF16); }, kInvalid,
                   Reason::kDtypeNotAllowed, "output_dtype"});
  cases.push_back({"output dtype unknown",
                   [](Request& r) { r.set_output_dtype(static_cast<rlk::v1::DataType>(99)); },
                   kInvalid, Reason::kUnknownEnumValue, "output_dtype"});
  RunTable(ForwardRequest(), cases);
}

TEST(RefusalsTest, BackwardRefusesEachWrongPart) {
  using Request = FinalLogitSoftcapBackwardRequest;
  std::vector<Case<Request>> cases = TensorCases<Request>(&Request::mutable_x, "x");
  Append(cases, TensorCases<Request>(&Request::mutable_grad_y, "grad_y"));
  Append(cases, SoftcapCases<Request>());
  Append(cases, OptionCases<Request>("grad_x"));
  cases.push_back(
      {"x missing", [](Request& r) { r.clear_x(); }, kInvalid, Reason::kMissingTensor, "x"});
  cases.push_back({"grad_y missing", [](Request& r) { r.clear_grad_y(); }, kInvalid,
                   Reason::kMissingTensor, "grad_y"});
  cases.push_back({"grad_y of another shape",
                   [](Request& r) {
                     r.mutable_grad_y()->set_shape(0, 3);
                     r.mutable_grad_y()->set_shape(1, 2);
                   },
                   kInvalid, Reason::kShapeMismatch, "grad_y"});
  RunTable(BackwardRequest(), cases);
}

TEST(RefusalsTest, RefusesBytesThatAreNoRequest) {
  TestServer server;
  const auto channel = DefaultChannel(server.tcp());
  const std::string good = ForwardRequest().SerializeAsString();
  std::string tensor;
  ForwardRequest().x().SerializeToString(&tensor);
  const std::string twice =
      good + std::string("\x0a", 1) + static_cast<char>(tensor.size()) + tensor;
  const struct {
    const char* name;
    std::string bytes;
    Reason reason;
    const char* field;
  } cases[] = {
      {"unknown top-level field", good + std::string("\xa0\x1f\x01", 3), Reason::kUnknownField,
       "500"},
      {"the tensor twice", twice, Reason::kDuplicateTensor, "x"},
      {"cut short", good.substr(0, good.size() - 1), Reason::kMalformedMessage, "softcap"},
      {"a length beyond the end", std::string("\x0a\x7f", 2), Reason::kMalformedMessage, "x"},
      {"field number 0", std::string("\x00\x01", 2), Reason::kMalformedMessage, "request"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const grpc::Status status = CallRaw(channel, kForwardPath, c.bytes).status;
    EXPECT_EQ(status.error_code(), kInvalid) << status.error_message();
    EXPECT_EQ(FactsOf(status).reason, ReasonName(c.reason)) << status.error_message();
    EXPECT_EQ(FactsOf(status).metadata["field"], c.field);
    EXPECT_TRUE(CallRaw(channel, kForwardPath, good).status.ok());
  }
}

TEST(RefusalsTest, RefusesMessagesAboveTheInlineLimitWithItsOwnError) {
  TestServer server;
  const auto stub = rlk::v1::ActivationService::NewStub(DefaultChannel(server.tcp()));
  // A payload of 2 MiB: with what stands around it above our limit, and below gRPC's cap.
  const grpc::Status status = Send(*stub, ForwardOfSize(1 << 19));
  EXPECT_EQ(status.error_code(), kInvalid);
  const ErrorFacts facts = FactsOf(status);
  EXPECT_EQ(facts.reason, ReasonName(Reason::kMessageTooLarge));
  EXPECT_EQ(facts.metadata.at("field"), "request");
  EXPECT_EQ(facts.metadata.at("allowed"), "at most 2097152 bytes (inline_bytes_max)");
  EXPECT_FALSE(facts.has_retry_info);
  // Above gRPC's cap the transport refuses.
  EXPECT_EQ(Send(*stub, ForwardOfSize((5 << 20) / 4)).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(Send(*stub, ForwardRequest()).ok());
}

TEST(RefusalsTest, RefusesRepliesAboveTheInlineLimitBeforeTheLaunch) {
  TestServer server;
  const auto stub = rlk::v1::ActivationService::NewStub(DefaultChannel(server.tcp()));
  // 1.5 MiB of BF16 become 3 MiB of FP32.
  FinalLogitSoftcapForwardRequest request;
  request.mutable_x()->set_dtype(rlk::v1::DATA_TYPE_BF16);
  request.mutable_x()->add_shape(3 << 18);
  request.mutable_x()->set_data(std::string(3 << 19, '\0'));
  const std::string kernel_count = "rlk_phase_duration_seconds_count{phase=\"kernel\"}";
  const double before = SeriesValue(Scrape(server.metrics()), kernel_count);
  const grpc::Status status = Send(*stub, request);
  EXPECT_EQ(status.error_code(), kInvalid);
  EXPECT_EQ(FactsOf(status).reason, ReasonName(Reason::kMessageTooLarge));
  EXPECT_EQ(FactsOf(status).metadata.at("field"), "reply");
  EXPECT_EQ(SeriesValue(Scrape(server.metrics()), kernel_count), before);
  request.set_output_dtype(rlk::v1::DATA_TYPE_BF16);
  EXPECT_TRUE(Send(*stub, request).ok());
  // Of a reply the tensors count: exactly 2 MiB of them pass.
  request.clear_output_dtype();
  request.mutable_x()->set_shape(0, 1 << 19);
  request.mutable_x()->set_data(std::string(1 << 20, '\0'));
  EXPECT_TRUE(Send(*stub, request).ok());
}

TEST(RefusalsTest, RefusesCompressedMessages) {
  TestServer server;
  const auto stub = rlk::v1::ActivationService::NewStub(DefaultChannel(server.tcp()));
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  rlk::v1::FinalLogitSoftcapForwardResponse response;
  const grpc::Status status =
      stub->FinalLogitSoftcapForward(&context, ForwardOfSize(100000), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
  EXPECT_TRUE(Send(*stub, ForwardRequest()).ok());
}

TEST(RefusalsTest, UnknownMethodIsUnimplemented) {
  TestServer server;
  const auto channel = DefaultChannel(server.tcp());
  for (const char* path : {"/rlk.v1.ActivationService/Nothing", "/rlk.v1.Nothing/Forward"}) {
    EXPECT_EQ(CallRaw(channel, path, "").status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  }
}

}  // namespace
}  // namespace rlk::test
