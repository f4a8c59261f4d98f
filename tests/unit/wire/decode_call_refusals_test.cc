// The call decoder refuses each perturbation of a valid request, with code, reason and field.
#include <functional>

#include "gmock/gmock.h"
#include "tests/unit/wire/decode_call_testing.h"

namespace rlk::wire {
namespace {

using testing::HasSubstr;
using Request = rlk::v1::FinalLogitSoftcapForwardRequest;

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
      {"OutputsUnknown",
       [](Request& r) {
         for (char name = 'z'; name >= 'a'; --name) {
           (*r.mutable_options()->mutable_outputs())[std::string(1, name)].mutable_inline_();
         }
       },
       {Reason::kUnknownOutput, "options.outputs"},
       "no output \"a\""},
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
  ExpectError(call.status(), {Reason::kMessageTooLarge, "request"});
  EXPECT_THAT(std::string(call.status().message()), HasSubstr("inline_bytes_max"));
}

TEST_F(DecodeCallTest, RefusesMoreThanTheHeaderLimitBesideElements) {
  const Request request = ValidRequest();
  Limits limits;
  limits.header_bytes_max =
      static_cast<int64_t>(request.ByteSizeLong() - request.x().data().size());
  EXPECT_TRUE(Decode(kForward, request, limits).ok());
  --limits.header_bytes_max;
  const auto call = Decode(kForward, request, limits);
  ASSERT_FALSE(call.ok());
  ExpectError(call.status(), {Reason::kLimitExceeded, "request"});
  EXPECT_THAT(std::string(call.status().message()), HasSubstr("header_bytes_max"));
}

// A message of 2 MiB holds 200,000 entries of a map, which take a second to check one by one: the
// bound is seen before any of them is, so the first one's fault is not what is said.
TEST_F(DecodeCallTest, RefusesManyMapEntriesBeforeLookingAtThem) {
  std::string options;
  for (int i = 0; i < 200000; ++i) options += BytesField(6, BytesField(1, "none"));
  const Limits limits;
  const std::string small = ValidRequest().SerializeAsString();
  ASSERT_LE(static_cast<int64_t>(small.size() + options.size() + 8), limits.inline_bytes_max);
  const auto call = DecodeBytes(kForward, Request::descriptor(), small + BytesField(100, options));
  ASSERT_FALSE(call.ok());
  ExpectError(call.status(), {Reason::kLimitExceeded, "request"});
  EXPECT_THAT(std::string(call.status().message()),
              HasSubstr("at most 65536 bytes (header_bytes_max)"));
}

}  // namespace
}  // namespace rlk::wire
