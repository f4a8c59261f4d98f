// The call decoder on requests that it takes; decode_call_refusals_test.cc has the others.
#include <functional>

#include "gmock/gmock.h"
#include "proto/wire/call_codec.h"
#include "rlk/v1/activation.pb.h"
#include "test_messages.pb.h"
#include "tests/unit/wire/decode_call_testing.h"

namespace rlk::wire {
namespace {

using rlk::v1::FinalLogitSoftcapBackwardRequest;
using rlk::v1::FinalLogitSoftcapForwardRequest;
using testing::HasSubstr;
using Request = FinalLogitSoftcapForwardRequest;

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

// What the two ways make of a request is the same: the fuzz targets see to that.
TEST_F(DecodeCallTest, TheShortWayTakesWhatClientsWrite) {
  const std::vector<std::pair<const char*, std::function<void(Request&)>>> cases = {
      {"every field", [](Request&) {}},
      {"no options", [](Request& r) { r.clear_options(); }},
      {"a resident tensor", [](Request& r) { r.mutable_x()->mutable_resident()->set_id("id"); }},
      {"one that is taken whole",
       [](Request& r) {
         r.clear_x();
         r.mutable_x()->mutable_resident()->set_id("id");
       }},
      {"a place in an arena",
       [](Request& r) { r.mutable_x()->mutable_arena()->set_generation(1 << 20); }},
      {"an output inline",
       [](Request& r) { (*r.mutable_options()->mutable_outputs())["y"].mutable_inline_(); }},
      {"a new resident output",
       [](Request& r) { (*r.mutable_options()->mutable_outputs())["y"].mutable_resident(); }},
      {"an output into a resident tensor",
       [](Request& r) {
         auto& y = (*r.mutable_options()->mutable_outputs())["y"];
         y.mutable_resident()->mutable_into()->set_generation(9);
       }},
  };
  for (const auto& [name, change] : cases) {
    SCOPED_TRACE(name);
    Request request = ValidRequest();
    change(request);
    const auto call = Decode(kForward, request);
    ASSERT_TRUE(call.ok()) << call.status();
    const std::optional<Call> common = DecodeCommon(kForward, request);
    ASSERT_TRUE(common.has_value());
    EXPECT_EQ(common->inputs[0].source, call->inputs[0].source);
    EXPECT_EQ(common->options.outputs.size(), call->options.outputs.size());
  }
}

TEST_F(DecodeCallTest, TheShortWayLeavesWhatIsRareOrWrong) {
  const std::vector<std::pair<const char*, std::function<void(Request&)>>> cases = {
      {"no source", [](Request& r) { r.mutable_x()->clear_source(); }},
      {"a text that is not ASCII",
       [](Request& r) { r.mutable_options()->set_backend("\xc3\xa9"); }},
      {"a text that is too long",
       [](Request& r) { r.mutable_options()->set_contract(std::string(1 << 12, 'c')); }},
      {"the name of an arena that is too long",
       [](Request& r) { r.mutable_x()->mutable_arena()->set_arena(std::string(1 << 12, 'c')); }},
      {"an output that is none",
       [](Request& r) { (*r.mutable_options()->mutable_outputs())["x"].mutable_inline_(); }},
      {"a placement that says nothing",
       [](Request& r) { (*r.mutable_options()->mutable_outputs())["y"].Clear(); }},
      {"a digest of nothing",
       [](Request& r) { r.mutable_options()->add_digests(rlk::v1::DIGEST_SCOPE_UNSPECIFIED); }},
      {"an unknown mode",
       [](Request& r) { r.mutable_options()->set_mode(static_cast<rlk::v1::Mode>(77)); }},
  };
  for (const auto& [name, change] : cases) {
    SCOPED_TRACE(name);
    Request request = ValidRequest();
    change(request);
    EXPECT_FALSE(DecodeCommon(kForward, request).has_value());
  }
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
  // What is taken whole needs no header; the server knows it.
  handle.set_offset(uint64_t{1} << 63);
  Request whole;
  *whole.mutable_x()->mutable_resident() = handle;
  auto& outputs = *whole.mutable_options()->mutable_outputs();
  *outputs["y"].mutable_resident()->mutable_into() = handle;
  const auto unknown = Decode(kForward, whole);
  ASSERT_TRUE(unknown.ok()) << unknown.status();
  EXPECT_EQ(unknown->inputs[0].dtype, DType::kUnspecified);
  EXPECT_EQ(unknown->inputs[0].resident.offset, uint64_t{1} << 63);
  const rlk::Placement& placement = unknown->options.outputs.at("y");
  EXPECT_EQ(placement.kind, PlacementKind::kResident);
  ASSERT_TRUE(placement.into.has_value());
  EXPECT_EQ(placement.into->id, "0123456789abcdef");
  EXPECT_EQ(placement.into->generation, 3u);
  outputs["y"].mutable_resident()->clear_into();
  EXPECT_FALSE(Decode(kForward, whole)->options.outputs.at("y").into.has_value());
  whole.mutable_x()->add_shape(2);
  EXPECT_FALSE(Decode(kForward, whole).ok()) << "a shape without a dtype says nothing";
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
