#include <functional>

#include "gmock/gmock.h"
#include "proto/wire/call_codec.h"
#include "rlk/v1/activation.pb.h"
#include "test_messages.pb.h"
#include "tests/unit/wire/wire_testing.h"

namespace rlk::wire {
namespace {

using rlk::v1::FinalLogitSoftcapBackwardRequest;
using rlk::v1::FinalLogitSoftcapForwardRequest;
using testing::HasSubstr;
using Request = FinalLogitSoftcapForwardRequest;

class DecodeCallTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto files = OperatorFiles();
    files.push_back(rlk::test::Everything::descriptor()->file());
    methods_ = new auto(BindMethods(files));
  }
  static void TearDownTestSuite() { delete methods_; }

  static const Method& Find(std::string_view name) {
    for (const auto& method : *methods_) {
      if (method->signature.method == name) return *method;
    }
    ADD_FAILURE() << "no method " << name;
    return *methods_->front();
  }

  // Pieces of 7 bytes, so that everything straddles. The bytes outlive the call.
  static absl::StatusOr<Call> DecodeBytes(std::string_view method,
                                          const google::protobuf::Descriptor* type,
                                          std::string bytes, const Limits& limits = Limits()) {
    auto owner = std::make_shared<std::string>(std::move(bytes));
    InputBytes input = Pieces(*owner, 7);
    input.owner = owner;
    return DecodeCall(Find(method), type, input, limits);
  }
  template <typename M>
  static absl::StatusOr<Call> Decode(std::string_view method, const M& message,
                                     const Limits& limits = Limits()) {
    return DecodeBytes(method, M::descriptor(), message.SerializeAsString(), limits);
  }

 private:
  static std::vector<std::unique_ptr<Method>>* methods_;
};

std::vector<std::unique_ptr<Method>>* DecodeCallTest::methods_ = nullptr;

void Fill(rlk::v1::Tensor* tensor, rlk::v1::DataType dtype, std::vector<int64_t> shape,
          size_t bytes) {
  tensor->set_dtype(dtype);
  for (const int64_t size : shape) tensor->add_shape(size);
  std::string data(bytes, 0);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i);
  tensor->set_data(data);
}

Request ValidRequest() {
  Request request;
  Fill(request.mutable_x(), rlk::v1::DATA_TYPE_F32, {2, 3}, 24);
  request.set_softcap(20.5);
  request.set_output_dtype(rlk::v1::DATA_TYPE_F32);
  rlk::v1::CallOptions& options = *request.mutable_options();
  options.set_contract("c");
  options.set_backend("cpu");
  options.set_mode(rlk::v1::MODE_AUTO);
  options.set_minimum_claim(rlk::v1::CLAIM_LEVEL_L3_PORTABLE);
  options.set_device_uuid("GPU-1");
  options.add_digests(rlk::v1::DIGEST_SCOPE_TENSOR);
  options.add_digests(rlk::v1::DIGEST_SCOPE_ROWS);
  options.set_input_capture(rlk::v1::INPUT_CAPTURE_SNAPSHOT);
  options.set_verification(rlk::v1::VERIFICATION_REFERENCE);
  options.add_wanted_outputs("y");
  options.add_wanted_outputs("y");
  rlk::v1::ArenaRef& arena = *(*options.mutable_outputs())["y"].mutable_arena();
  arena.set_arena("arena");
  arena.set_generation(5);
  arena.set_offset(256);
  return request;
}

constexpr char kForward[] = "final_logit_softcap.forward";
constexpr char kBackward[] = "final_logit_softcap.backward";

TEST_F(DecodeCallTest, FillsEverything) {
  const Request request = ValidRequest();
  const auto call = Decode(kForward, request);
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ(call->method->signature.method, kForward);
  EXPECT_EQ(call->message_bytes, static_cast<int64_t>(request.ByteSizeLong()));
  ASSERT_EQ(call->inputs.size(), 1u);
  const TensorArg& x = call->inputs[0];
  EXPECT_EQ(x.spec, 0);
  EXPECT_EQ(x.dtype, DType::kF32);
  EXPECT_EQ(x.shape, Dims({2, 3}));
  EXPECT_EQ(x.strides, Dims({3, 1}));
  EXPECT_EQ(x.source, TensorSource::kInline);
  EXPECT_EQ(Flatten(x.data), request.x().data());
  EXPECT_NE(x.data.owner, nullptr);
  ASSERT_EQ(call->attributes.size(), 2u);
  EXPECT_EQ(call->attributes[0].spec, 0);
  EXPECT_EQ(call->attributes[0].number, 20.5);
  EXPECT_EQ(call->attributes[1].spec, 1);
  EXPECT_EQ(call->attributes[1].integer, static_cast<int64_t>(DType::kF32));
  const CallOptions& options = call->options;
  EXPECT_EQ(options.contract, "c");
  EXPECT_EQ(options.backend, "cpu");
  EXPECT_TRUE(options.allow_fallback);
  EXPECT_EQ(options.minimum_claim, ClaimLevel::kL3Portable);
  EXPECT_EQ(options.device_uuid, "GPU-1");
  EXPECT_TRUE(options.digest_tensors);
  EXPECT_TRUE(options.digest_rows);
  EXPECT_EQ(options.input_capture, InputCapture::kSnapshot);
  EXPECT_EQ(options.verification, Verification::kReference);
  EXPECT_THAT(options.wanted_outputs, testing::ElementsAre("y"));
  ASSERT_EQ(options.outputs.count("y"), 1u);
  const Placement& placement = options.outputs.at("y");
  EXPECT_EQ(placement.kind, PlacementKind::kArena);
  EXPECT_EQ(placement.arena.arena, "arena");
  EXPECT_EQ(placement.arena.generation, 5u);
  EXPECT_EQ(placement.arena.offset, 256u);
}

TEST_F(DecodeCallTest, DefaultsAreStrictAndBatchInvariant) {
  Request request;
  Fill(request.mutable_x(), rlk::v1::DATA_TYPE_BF16, {}, 2);
  const auto call = Decode(kForward, request);
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_TRUE(call->attributes.empty());
  EXPECT_FALSE(call->options.allow_fallback);
  EXPECT_EQ(call->options.minimum_claim, ClaimLevel::kL1BatchInvariant);
  EXPECT_EQ(call->options.verification, Verification::kNone);
  EXPECT_EQ(call->inputs[0].shape.rank(), 0);
}

TEST_F(DecodeCallTest, KeepsNanPayloadsAndDoublesThatDoNotFitFloat) {
  Request request = ValidRequest();
  request.mutable_x()->mutable_data()->replace(0, 4, "\x01\x00\xa0\xff", 4);
  request.set_softcap(1e-46);
  const auto call = Decode(kForward, request);
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ(Flatten(call->inputs[0].data), request.x().data());
  EXPECT_EQ(call->attributes[0].number, 1e-46);
}

TEST_F(DecodeCallTest, InputsComeInSignatureOrderWhateverTheWireOrder) {
  FinalLogitSoftcapBackwardRequest request;
  Fill(request.mutable_x(), rlk::v1::DATA_TYPE_F16, {4}, 8);
  Fill(request.mutable_grad_y(), rlk::v1::DATA_TYPE_F32, {4}, 16);
  FinalLogitSoftcapBackwardRequest first = request, second = request;
  first.clear_x();
  second.clear_grad_y();
  const auto call = DecodeBytes(kBackward, FinalLogitSoftcapBackwardRequest::descriptor(),
                                first.SerializeAsString() + second.SerializeAsString());
  ASSERT_TRUE(call.ok()) << call.status();
  ASSERT_EQ(call->inputs.size(), 2u);
  EXPECT_EQ(call->inputs[0].dtype, DType::kF16);
  EXPECT_EQ(call->inputs[1].dtype, DType::kF32);
  EXPECT_EQ(call->inputs[1].spec, 1);
}

TEST_F(DecodeCallTest, TakesReferences) {
  Request request = ValidRequest();
  rlk::v1::TensorHandle& handle = *request.mutable_x()->mutable_resident();
  handle.set_id("0123456789abcdef");
  handle.set_server_id("s");
  handle.set_generation(3);
  const auto resident = Decode(kForward, request);
  ASSERT_TRUE(resident.ok()) << resident.status();
  EXPECT_EQ(resident->inputs[0].source, TensorSource::kResident);
  EXPECT_EQ(resident->inputs[0].resident.id, "0123456789abcdef");
  EXPECT_EQ(resident->inputs[0].resident.generation, 3u);
  request.mutable_x()->mutable_arena()->set_offset(9);
  const auto arena = Decode(kForward, request);
  ASSERT_TRUE(arena.ok()) << arena.status();
  EXPECT_EQ(arena->inputs[0].source, TensorSource::kArena);
  EXPECT_EQ(arena->inputs[0].arena.offset, 9u);
}

struct LayoutCase {
  std::string name;
  std::vector<int64_t> shape, strides;
  size_t bytes;  // of F32
  std::vector<int64_t> expected_strides;
};

TEST_F(DecodeCallTest, TakesEveryLegalLayout) {
  constexpr int64_t kHuge = int64_t{1} << 60;
  const LayoutCase cases[] = {
      {"scalar", {}, {}, 4, {}},
      {"row gap", {2, 3}, {5, 1}, 32, {5, 1}},
      {"transposed", {2, 3}, {1, 2}, 24, {1, 2}},
      {"broadcast", {1000, 2}, {0, 1}, 8, {0, 1}},
      {"overlapping", {3, 3}, {1, 1}, 20, {1, 1}},
      {"size 1 with any stride", {1, 3}, {kHuge, 1}, 12, {kHuge, 1}},
      {"empty", {0}, {}, 0, {1}},
      {"empty with strides", {3, 0}, {kHuge, 7}, 0, {kHuge, 7}},
      {"empty in the middle", {2, 0, 3}, {}, 0, {0, 3, 1}},
      {"rank 8", {1, 1, 2, 1, 1, 1, 1, 3}, {}, 24, {6, 6, 3, 3, 3, 3, 3, 1}},
  };
  for (const LayoutCase& layout : cases) {
    SCOPED_TRACE(layout.name);
    Request request;
    Fill(request.mutable_x(), rlk::v1::DATA_TYPE_F32, layout.shape, layout.bytes);
    for (const int64_t stride : layout.strides) request.mutable_x()->add_strides(stride);
    const auto call = Decode(kForward, request);
    ASSERT_TRUE(call.ok()) << call.status();
    EXPECT_EQ(call->inputs[0].strides, Dims(std::span<const int64_t>(layout.expected_strides)));
    EXPECT_EQ(call->inputs[0].shape, Dims(std::span<const int64_t>(layout.shape)));
  }
}

// Each case changes one thing of a valid request.
struct Perturbation {
  std::string name;
  std::function<void(Request&)> change;
  ExpectedError error;
  std::string message;
};

std::vector<Perturbation> TensorPerturbations() {
  static constexpr int64_t kHuge = int64_t{1} << 62;
  return {
      {"DtypeUnspecified",
       [](Request& r) { r.mutable_x()->clear_dtype(); },
       {Reason::kDtypeNotAllowed, "x"},
       "F32, F16, BF16"},
      {"DtypeUnknown",
       [](Request& r) { r.mutable_x()->set_dtype(static_cast<rlk::v1::DataType>(9)); },
       {Reason::kUnknownEnumValue, "x.dtype"},
       "DATA_TYPE_BF16"},
      {"DtypeSmaller",
       [](Request& r) { r.mutable_x()->set_dtype(rlk::v1::DATA_TYPE_F16); },
       {Reason::kPayloadSizeMismatch, "x.data"},
       "24 bytes, but shape [2, 3] of F16 takes 12"},
      {"DtypeOfAnotherSizeNotAllowed",
       [](Request& r) { r.mutable_x()->set_dtype(rlk::v1::DATA_TYPE_F64); },
       {Reason::kDtypeNotAllowed, "x"},
       "dtype F64 is not allowed"},
      {"Shape0",
       [](Request& r) { r.mutable_x()->set_shape(0, 3); },
       {Reason::kPayloadSizeMismatch, "x.data"},
       "takes 36"},
      {"Shape1",
       [](Request& r) { r.mutable_x()->set_shape(1, 0); },
       {Reason::kPayloadSizeMismatch, "x.data"},
       "takes 0"},
      {"ShapeNegative",
       [](Request& r) { r.mutable_x()->set_shape(1, -3); },
       {Reason::kShapeMismatch, "x.shape[1]"},
       "-3"},
      {"ShapeShorter",
       [](Request& r) { r.mutable_x()->mutable_shape()->RemoveLast(); },
       {Reason::kPayloadSizeMismatch, "x.data"},
       "takes 8"},
      {"ShapeLonger",
       [](Request& r) { r.mutable_x()->add_shape(2); },
       {Reason::kPayloadSizeMismatch, "x.data"},
       "takes 48"},
      {"Rank9",
       [](Request& r) { r.mutable_x()->mutable_shape()->Resize(9, 1); },
       {Reason::kRankTooLarge, "x.shape"},
       "at most 8 (rank_max)"},
      {"ShapeOverflows",
       [](Request& r) {
         r.mutable_x()->set_shape(0, kHuge);
         r.mutable_x()->set_shape(1, kHuge);
       },
       {Reason::kLimitExceeded, "x.shape"},
       "beyond 64 bits"},
      {"ShapeOverflowsBesideZero",
       [](Request& r) {
         r.mutable_x()->set_shape(0, kHuge);
         r.mutable_x()->set_shape(1, kHuge);
         r.mutable_x()->add_shape(0);
         r.mutable_x()->set_data("");
       },
       {Reason::kLimitExceeded, "x.shape"},
       "beyond 64 bits"},
      {"BytesOverflow",
       [](Request& r) { r.mutable_x()->set_shape(0, kHuge / 2); },
       {Reason::kLimitExceeded, "x.shape"},
       "call_bytes_max"},
      {"OneStride",
       [](Request& r) { r.mutable_x()->add_strides(1); },
       {Reason::kInvalidStrides, "x.strides"},
       "1 strides for rank 2"},
      {"ThreeStrides",
       [](Request& r) { r.mutable_x()->mutable_strides()->Resize(3, 1); },
       {Reason::kInvalidStrides, "x.strides"},
       "3 strides for rank 2"},
      {"StrideNegative",
       [](Request& r) {
         r.mutable_x()->add_strides(3);
         r.mutable_x()->add_strides(-1);
       },
       {Reason::kInvalidStrides, "x.strides[1]"},
       "-1"},
      {"StridesReachFurther",
       [](Request& r) {
         r.mutable_x()->add_strides(4);
         r.mutable_x()->add_strides(1);
       },
       {Reason::kPayloadSizeMismatch, "x.data"},
       "with strides [4, 1] of F32 takes 28"},
      {"StridesReachLess",
       [](Request& r) { r.mutable_x()->mutable_strides()->Resize(2, 1); },
       {Reason::kPayloadSizeMismatch, "x.data"},
       "takes 16"},
      {"StridesOverflow",
       [](Request& r) { r.mutable_x()->mutable_strides()->Resize(2, kHuge); },
       {Reason::kInvalidStrides, "x.strides"},
       "reach too far"},
      {"DataShorter",
       [](Request& r) { r.mutable_x()->mutable_data()->pop_back(); },
       {Reason::kPayloadSizeMismatch, "x.data"},
       "23 bytes"},
      {"DataLonger",
       [](Request& r) { r.mutable_x()->mutable_data()->push_back(0); },
       {Reason::kPayloadSizeMismatch, "x.data"},
       "25 bytes"},
      {"DataEmpty",
       [](Request& r) { r.mutable_x()->set_data(""); },
       {Reason::kPayloadSizeMismatch, "x.data"},
       "0 bytes"},
      {"NoSource",
       [](Request& r) { r.mutable_x()->clear_data(); },
       {Reason::kMissingTensor, "x"},
       "data, resident, arena"},
      {"HandleTooLong",
       [](Request& r) { r.mutable_x()->mutable_resident()->set_id(std::string(257, 'a')); },
       {Reason::kLimitExceeded, "x.resident.id"},
       "attribute_text_bytes_max"},
      {"ServerIdTooLong",
       [](Request& r) { r.mutable_x()->mutable_resident()->set_server_id(std::string(257, 'a')); },
       {Reason::kLimitExceeded, "x.resident.server_id"},
       "257 bytes"},
      {"ArenaTooLong",
       [](Request& r) { r.mutable_x()->mutable_arena()->set_arena(std::string(257, 'a')); },
       {Reason::kLimitExceeded, "x.arena.arena"},
       "257 bytes"},
      {"OutputDtypeUnknown",
       [](Request& r) { r.set_output_dtype(static_cast<rlk::v1::DataType>(77)); },
       {Reason::kUnknownEnumValue, "output_dtype"},
       "77"},
  };
}

std::vector<Perturbation> OptionPerturbations() {
  const std::string text(257, 't');
  return {
      {"ContractTooLong",
       [=](Request& r) { r.mutable_options()->set_contract(text); },
       {Reason::kLimitExceeded, "options.contract"},
       "at most 256"},
      {"BackendTooLong",
       [=](Request& r) { r.mutable_options()->set_backend(text); },
       {Reason::kLimitExceeded, "options.backend"},
       "257 bytes"},
      {"DeviceTooLong",
       [=](Request& r) { r.mutable_options()->set_device_uuid(text); },
       {Reason::kLimitExceeded, "options.device_uuid"},
       "257 bytes"},
      {"ModeUnknown",
       [](Request& r) { r.mutable_options()->set_mode(static_cast<rlk::v1::Mode>(3)); },
       {Reason::kUnknownEnumValue, "options.mode"},
       "MODE_STRICT, MODE_AUTO"},
      {"ClaimUnknown",
       [](Request& r) {
         r.mutable_options()->set_minimum_claim(static_cast<rlk::v1::ClaimLevel>(5));
       },
       {Reason::kUnknownEnumValue, "options.minimum_claim"},
       "CLAIM_LEVEL_L3_PORTABLE"},
      {"CaptureUnknown",
       [](Request& r) {
         r.mutable_options()->set_input_capture(static_cast<rlk::v1::InputCapture>(-1));
       },
       {Reason::kUnknownEnumValue, "options.input_capture"},
       "-1"},
      {"VerificationUnknown",
       [](Request& r) {
         r.mutable_options()->set_verification(static_cast<rlk::v1::Verification>(3));
       },
       {Reason::kUnknownEnumValue, "options.verification"},
       "VERIFICATION_REPEAT"},
      {"DigestUnknown",
       [](Request& r) { r.mutable_options()->add_digests(static_cast<rlk::v1::DigestScope>(9)); },
       {Reason::kUnknownEnumValue, "options.digests[0]"},
       "DIGEST_SCOPE_ROWS"},
      {"DigestUnspecified",
       [](Request& r) { r.mutable_options()->add_digests(rlk::v1::DIGEST_SCOPE_UNSPECIFIED); },
       {Reason::kUnknownOption, "options.digests"},
       "DIGEST_SCOPE_TENSOR"},
      {"WantedUnknown",
       [](Request& r) { r.mutable_options()->add_wanted_outputs("z"); },
       {Reason::kUnknownOutput, "options.wanted_outputs"},
       "no output \"z\"; allowed: y"},
      {"WantedEmpty",
       [](Request& r) { r.mutable_options()->add_wanted_outputs(""); },
       {Reason::kUnknownOutput, "options.wanted_outputs"},
       "allowed: y"},
      {"WantedTooLong",
       [=](Request& r) { r.mutable_options()->add_wanted_outputs(text); },
       {Reason::kLimitExceeded, "options.wanted_outputs"},
       "257 bytes"},
      {"OutputUnknown",
       [](Request& r) { (*r.mutable_options()->mutable_outputs())["x"].mutable_inline_(); },
       {Reason::kUnknownOutput, "options.outputs"},
       "allowed: y"},
      {"OutputTooLong",
       [=](Request& r) { (*r.mutable_options()->mutable_outputs())[text].mutable_inline_(); },
       {Reason::kLimitExceeded, "options.outputs"},
       "257 bytes"},
      {"PlacementEmpty",
       [](Request& r) { (*r.mutable_options()->mutable_outputs())["y"].clear_kind(); },
       {Reason::kUnknownOption, "options.outputs[y]"},
       "inline, resident, arena"},
      {"PlacementArenaTooLong",
       [=](Request& r) {
         (*r.mutable_options()->mutable_outputs())["y"].mutable_arena()->set_arena(text);
       },
       {Reason::kLimitExceeded, "options.outputs[y]"},
       "257 bytes"},
  };
}

class Perturbed : public DecodeCallTest, public testing::WithParamInterface<Perturbation> {};

TEST_P(Perturbed, IsRefused) {
  Request request = ValidRequest();
  GetParam().change(request);
  const auto call = Decode(kForward, request);
  ASSERT_FALSE(call.ok());
  ExpectError(call.status(), GetParam().error);
  EXPECT_THAT(std::string(call.status().message()), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(Tensor, Perturbed, testing::ValuesIn(TensorPerturbations()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Options, Perturbed, testing::ValuesIn(OptionPerturbations()),
                         [](const auto& info) { return info.param.name; });

// What is wrong only by the signature is decoded as it is: the contract check refuses it.
TEST_F(DecodeCallTest, LeavesTheSignaturesRulesToTheContractCheck) {
  const std::pair<const char*, std::function<void(Request&)>> cases[] = {
      {"dtype of the same size",
       [](Request& r) { r.mutable_x()->set_dtype(rlk::v1::DATA_TYPE_I32); }},
      {"missing tensor", [](Request& r) { r.clear_x(); }},
      {"softcap out of range", [](Request& r) { r.set_softcap(-1); }},
      {"output dtype not allowed", [](Request& r) { r.set_output_dtype(rlk::v1::DATA_TYPE_BF16); }},
      {"output dtype unspecified",
       [](Request& r) { r.set_output_dtype(rlk::v1::DATA_TYPE_UNSPECIFIED); }},
      {"unknown contract", [](Request& r) { r.mutable_options()->set_contract("none"); }},
      {"unknown backend", [](Request& r) { r.mutable_options()->set_backend("none"); }},
      {"unknown device", [](Request& r) { r.mutable_options()->set_device_uuid("none"); }},
  };
  for (const auto& [name, change] : cases) {
    Request request = ValidRequest();
    change(request);
    EXPECT_TRUE(Decode(kForward, request).ok()) << name;
  }
}

// Every field of the request and of its messages, with a field that does not exist beside it.
TEST_F(DecodeCallTest, RefusesUnknownFieldsAtEveryDepth) {
  const std::string valid = ValidRequest().SerializeAsString();
  const std::string unknown = VarintField(55, 1);
  const std::pair<std::string, std::string> cases[] = {
      {valid + unknown, "55"},
      {BytesField(1, ValidRequest().x().SerializeAsString() + unknown), "x.55"},
      {BytesField(1, BytesField(5, unknown)), "x.resident.55"},
      {BytesField(1, BytesField(6, unknown)), "x.arena.55"},
      {BytesField(100, unknown), "options.55"},
      {BytesField(100, BytesField(6, unknown)), "options.outputs.55"},
      {BytesField(100, BytesField(6, BytesField(2, unknown))), "options.outputs.value.55"},
      {BytesField(100, BytesField(6, BytesField(2, BytesField(1, unknown)))),
       "options.outputs.value.inline.55"},
      {BytesField(100, BytesField(6, BytesField(2, BytesField(3, unknown)))),
       "options.outputs.value.arena.55"},
      {BytesField(2, ""), "softcap"},
  };
  for (const auto& [bytes, field] : cases) {
    const auto call = DecodeBytes(kForward, Request::descriptor(), bytes);
    ASSERT_FALSE(call.ok()) << field;
    ExpectError(call.status(),
                {field == "softcap" ? Reason::kMalformedMessage : Reason::kUnknownField, field});
  }
}

TEST_F(DecodeCallTest, RefusesOptionsGivenTwice) {
  const auto call = DecodeBytes(kForward, Request::descriptor(),
                                ValidRequest().SerializeAsString() + BytesField(100, ""));
  ASSERT_FALSE(call.ok());
  ExpectError(call.status(), {Reason::kMalformedMessage, "options"});
}

TEST_F(DecodeCallTest, RefusesAMessageAboveTheInlineLimit) {
  const Request request = ValidRequest();
  Limits limits;
  limits.inline_bytes_max = static_cast<int64_t>(request.ByteSizeLong());
  EXPECT_TRUE(Decode(kForward, request, limits).ok());
  --limits.inline_bytes_max;
  const auto call = Decode(kForward, request, limits);
  ASSERT_FALSE(call.ok());
  ExpectError(call.status(), {Reason::kMessageTooLarge, ""});
  EXPECT_THAT(std::string(call.status().message()), HasSubstr("inline_bytes_max"));
}

TEST_F(DecodeCallTest, RepeatedTensorsAndEveryKindOfAttribute) {
  rlk::test::GatherAllForwardRequest request;
  Fill(request.mutable_index(), rlk::v1::DATA_TYPE_I64, {2}, 16);
  for (int i = 0; i < 3; ++i) Fill(request.add_parts(), rlk::v1::DATA_TYPE_BF16, {i, 1}, 2 * i);
  request.set_eps(0.25);
  request.set_rows_before(-5);
  request.set_causal(false);
  request.set_color(rlk::test::COLOR_NEGATIVE);
  request.set_output_dtype(rlk::v1::DATA_TYPE_BF16);
  const auto call = Decode("gather_all.forward", request);
  ASSERT_TRUE(call.ok()) << call.status();
  ASSERT_EQ(call->inputs.size(), 4u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(call->inputs[i + 1].spec, 1);
    EXPECT_EQ(call->inputs[i + 1].shape, Dims({i, 1}));
    EXPECT_EQ(call->inputs[i + 1].data.size, 2 * i);
  }
  ASSERT_EQ(call->attributes.size(), 5u);
  EXPECT_EQ(call->attributes[0].number, 0.25);
  EXPECT_EQ(call->attributes[1].integer, -5);
  EXPECT_EQ(call->attributes[2].integer, 0);
  EXPECT_EQ(call->attributes[3].integer, -2);
  EXPECT_EQ(call->attributes[4].integer, static_cast<int64_t>(DType::kBF16));

  request.mutable_parts(1)->set_data("");
  const auto mismatch = Decode("gather_all.forward", request);
  ExpectError(mismatch.status(), {Reason::kPayloadSizeMismatch, "parts[1].data"});
  request.mutable_parts(1)->set_data("ab");
  Fill(request.add_parts(), rlk::v1::DATA_TYPE_BF16, {0, 1}, 0);
  const auto too_many = Decode("gather_all.forward", request);
  ExpectError(too_many.status(), {Reason::kLimitExceeded, "parts"});
  EXPECT_THAT(std::string(too_many.status().message()), HasSubstr("at most 3 (max_count)"));
}

}  // namespace
}  // namespace rlk::wire
