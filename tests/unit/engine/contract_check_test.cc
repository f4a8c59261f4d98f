#include "server/engine/contract_check.h"

#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/core/status.h"
#include "tests/support/calls.h"
#include "tests/support/toy_ops.h"

namespace rlk::server {
namespace {

using test::Rich;
using test::ZeroTensor;

class ContractCheck : public testing::Test {
 protected:
  // a[2, 3, 4], b[4], list of two [5, 8], fixed[4], last[2, 3, 5]: H = 4, T = 5, ... = [2, 3].
  Call Good() const {
    Call call;
    call.method = registry_->Find("toy.rich");
    call.inputs = {ZeroTensor(Rich::kA, DType::kBF16, {2, 3, 4}),
                   ZeroTensor(Rich::kB, DType::kF32, {4}),
                   ZeroTensor(Rich::kList, DType::kI32, {5, 8}),
                   ZeroTensor(Rich::kList, DType::kI32, {5, 8}),
                   ZeroTensor(Rich::kFixed, DType::kU8, {4}),
                   ZeroTensor(Rich::kLast, DType::kF32, {2, 3, 5})};
    call.attributes = {{.spec = Rich::kRequired, .number = 1}};
    return call;
  }

  absl::StatusOr<CheckedCall> Check(const Call& call) const { return CheckCall(call, options_); }

  ContractCheckOptions options_;
  std::unique_ptr<Registry> registry_ = test::MakeToyRegistry();
};

TEST_F(ContractCheck, PlansTheOutputs) {
  const auto checked = Check(Good());
  ASSERT_TRUE(checked.ok()) << checked.status();
  ASSERT_EQ(checked->outputs.size(), 3u);
  EXPECT_EQ(checked->outputs[Rich::kY].dtype, DType::kF32);
  EXPECT_EQ(checked->outputs[Rich::kY].shape, (Dims{2, 3, 4}));
  EXPECT_FALSE(checked->outputs[Rich::kPairs].wanted());
  EXPECT_EQ(checked->outputs[Rich::kScalar].dtype, DType::kI64);
  EXPECT_EQ(checked->outputs[Rich::kScalar].shape, Dims());
  EXPECT_EQ(checked->input_begin, (std::vector<int32_t>{0, 1, 2, 4, 5, 6}));
  EXPECT_EQ(checked->input_bytes, 48 + 16 + 160 + 160 + 4 + 120);
  EXPECT_EQ(checked->output_bytes, 96 + 8);
  EXPECT_EQ(checked->elements_max, 40);
}

TEST_F(ContractCheck, FollowsDTypeAttributesAndWantedOutputs) {
  Call call = Good();
  call.attributes.push_back({.spec = Rich::kDType, .integer = static_cast<int64_t>(DType::kBF16)});
  call.options.wanted_outputs = {"pairs", "y"};
  call.options.outputs["pairs"] = {};
  const auto checked = Check(call);
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_EQ(checked->outputs[Rich::kY].dtype, DType::kBF16);
  EXPECT_EQ(checked->outputs[Rich::kPairs].dtype, DType::kBF16);
  EXPECT_EQ(checked->outputs[Rich::kPairs].shape, (Dims{12, 4}));
  EXPECT_FALSE(checked->outputs[Rich::kScalar].wanted());
}

TEST_F(ContractCheck, TakesWhatTheSignatureAllows) {
  struct Case {
    const char* what;
    std::function<void(Call&)> change;
  };
  const Case kCases[] = {
      {"optional tensors absent", [](Call& c) { c.inputs.resize(1); }},
      {"b in a's dtype", [](Call& c) { c.inputs[1] = ZeroTensor(Rich::kB, DType::kBF16, {4}); }},
      {"three in the list",
       [](Call& c) {
         c.inputs.insert(c.inputs.begin() + 2, ZeroTensor(Rich::kList, DType::kI32, {5, 8}));
       }},
      {"no leading dims",
       [](Call& c) {
         c.inputs[0] = ZeroTensor(Rich::kA, DType::kF32, {4});
         c.inputs[5] = ZeroTensor(Rich::kLast, DType::kF32, {5});
       }},
      {"an empty leading dim",
       [](Call& c) {
         c.inputs[0] = ZeroTensor(Rich::kA, DType::kF32, {0, 3, 4});
         c.inputs[5] = ZeroTensor(Rich::kLast, DType::kF32, {0, 3, 5});
       }},
      {"a strided",
       [](Call& c) {
         c.inputs[0].strides = {20, 5, 1};  // 1 + 20 + 10 + 3 = 34 elements
         c.inputs[0].data = test::ToBytes(std::vector<uint16_t>(34));
       }},
      {"a broadcast by stride 0",
       [](Call& c) {
         c.inputs[0].strides = {0, 0, 1};
         c.inputs[0].data = test::ToBytes(std::vector<uint16_t>(4));
       }},
      {"odd strides of size-1 dims on a contiguous tensor",
       [](Call& c) { c.inputs[4].strides = {1}; }},
      {"many pieces",
       [](Call& c) { c.inputs[0].data = test::ToBytes(std::vector<uint16_t>(24), 7); }},
  };
  for (const Case& c : kCases) {
    Call call = Good();
    c.change(call);
    const auto checked = Check(call);
    EXPECT_TRUE(checked.ok()) << c.what << ": " << checked.status();
  }
}

struct Refusal {
  const char* what;
  std::function<void(Call&)> change;
  Reason reason;
  const char* field;
  const char* allowed;  // part of it
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
};

TEST_F(ContractCheck, RefusesEachPerturbation) {
  const auto dims = [](size_t input, Dims shape) {
    return [input, shape](Call& c) {
      c.inputs[input] = ZeroTensor(c.inputs[input].spec, c.inputs[input].dtype, shape);
    };
  };
  const auto dtype = [](size_t input, DType type) {
    return [input, type](Call& c) {
      c.inputs[input] = ZeroTensor(c.inputs[input].spec, type, c.inputs[input].shape);
    };
  };
  const int64_t huge = int64_t{1} << 40;
  const Refusal kRefusals[] = {
      {"a is missing", [](Call& c) { c.inputs.erase(c.inputs.begin()); }, Reason::kMissingTensor,
       "a", "a tensor"},
      {"a twice", [](Call& c) { c.inputs.insert(c.inputs.begin(), c.inputs[0]); },
       Reason::kDuplicateTensor, "a", "one tensor"},
      {"a tensor too many", [](Call& c) { c.inputs.push_back(ZeroTensor(9, DType::kF32, {1})); },
       Reason::kUnexpectedTensor, "", "5 inputs"},
      {"a list too long",
       [](Call& c) {
         for (int i = 0; i < 2; ++i) c.inputs.insert(c.inputs.begin() + 2, c.inputs[2]);
       },
       Reason::kLimitExceeded, "list", "at most 3"},
      {"a in F64", dtype(0, DType::kF64), Reason::kDtypeNotAllowed, "a", "F32, F16, BF16"},
      {"a in I32", dtype(0, DType::kI32), Reason::kDtypeNotAllowed, "a", "F32, F16, BF16"},
      {"b in neither F32 nor a's", dtype(1, DType::kF16), Reason::kDtypeNotAllowed, "b",
       "F32, BF16"},
      {"no dtype", [](Call& c) { c.inputs[0].dtype = DType::kUnspecified; },
       Reason::kDtypeNotAllowed, "a", "F32"},
      {"the list's second entry", dtype(3, DType::kI64), Reason::kDtypeNotAllowed, "list[1]",
       "I32"},
      {"H differs in b", dims(1, {5}), Reason::kShapeMismatch, "b", "[H] with H = 4"},
      {"2*H differs in the list", dims(2, {5, 10}), Reason::kShapeMismatch, "list[0]", "H = 4"},
      {"2*H is odd", dims(2, {5, 9}), Reason::kShapeMismatch, "list[0]", "divisible by 2"},
      {"T differs in the list", dims(3, {6, 8}), Reason::kShapeMismatch, "list[1]", "T = 5"},
      {"an integer dim differs", dims(4, {5}), Reason::kShapeMismatch, "fixed", "[4]"},
      {"the leading shape differs", dims(5, {2, 4, 5}), Reason::kShapeMismatch, "last",
       "... = [2, 3]"},
      {"the leading rank differs", dims(5, {6, 5}), Reason::kShapeMismatch, "last", "... = [2, 3]"},
      {"rank too small", dims(0, {}), Reason::kShapeMismatch, "a", "[..., H]"},
      {"rank too large without ...", dims(1, {1, 4}), Reason::kShapeMismatch, "b", "[H]"},
      {"a negative size", [](Call& c) { c.inputs[0].shape[0] = -2; }, Reason::kShapeMismatch, "a",
       "sizes >= 0"},
      {"sizes that overflow",
       [huge](Call& c) {
         c.inputs[0].shape = {huge, huge, 4};
         c.inputs[0].strides = {0, 0, 1};
       },
       Reason::kLimitExceeded, "a", "call_bytes_max"},
      {"sizes that overflow behind a 0",
       [huge](Call& c) {
         c.inputs[0].shape = {0, huge, huge};
         c.inputs[0].strides = {0, 0, 1};
       },
       Reason::kLimitExceeded, "a", "call_bytes_max"},
      {"strides that overflow",
       [](Call& c) {
         c.inputs[0].strides = {INT64_MAX / 2, INT64_MAX / 2, 1};
       },
       Reason::kInvalidStrides, "a", "63 bits"},
      {"work without bytes",
       [huge](Call& c) {
         c.inputs[0].shape = {huge, 1, 4};
         c.inputs[0].strides = {0, 0, 1};
         c.inputs[0].data = test::ToBytes(std::vector<uint16_t>(4));
       },
       Reason::kLimitExceeded, "a", "call_bytes_max"},
      {"a negative stride", [](Call& c) { c.inputs[0].strides[1] = -4; }, Reason::kInvalidStrides,
       "a", "strides >= 0"},
      {"a stride missing",
       [](Call& c) {
         c.inputs[0].strides = {4, 1};
       },
       Reason::kInvalidStrides, "a", "3 strides"},
      {"a gap where C order is needed",
       [](Call& c) {
         c.inputs[4].strides = {2};
         c.inputs[4].data = test::ToBytes(std::vector<uint8_t>(7));
       },
       Reason::kInvalidStrides, "fixed", "[1]"},
      {"a byte too few", [](Call& c) { c.inputs[0].data = test::ToBytes(std::vector<char>(47)); },
       Reason::kPayloadSizeMismatch, "a", "48 bytes"},
      {"a byte too many", [](Call& c) { c.inputs[0].data = test::ToBytes(std::vector<char>(49)); },
       Reason::kPayloadSizeMismatch, "a", "48 bytes"},
      {"bytes for an empty tensor",
       [](Call& c) {
         c.inputs[0].shape[0] = 0;
         c.inputs.resize(1);
       },
       Reason::kPayloadSizeMismatch, "a", "0 bytes"},
      {"an arena offset off its alignment",
       [](Call& c) {
         c.inputs[4].source = TensorSource::kArena;
         c.inputs[4].arena.offset = 8;
       },
       Reason::kMisaligned, "fixed", "a multiple of 16"},
      {"a wrong attribute",
       [](Call& c) { c.attributes.push_back({.spec = Rich::kFactor, .number = -1}); },
       Reason::kAttributeOutOfRange, "factor", "> 0"},
      {"an unknown output", [](Call& c) { c.options.wanted_outputs = {"z"}; },
       Reason::kUnknownOutput, "options.wanted_outputs", "y, pairs, scalar"},
      {"a placement of an unknown output", [](Call& c) { c.options.outputs["z"] = {}; },
       Reason::kUnknownOutput, "options.outputs", "y, pairs, scalar"},
      {"a placement of an output that is not computed",
       [](Call& c) { c.options.outputs["pairs"] = {}; }, Reason::kUnknownOutput, "options.outputs",
       "computes"},
      {"a resident output", [](Call& c) { c.options.outputs["y"].kind = PlacementKind::kResident; },
       Reason::kPlacementUnavailable, "options.outputs.y", "inline",
       absl::StatusCode::kFailedPrecondition},
      {"an output in an arena",
       [](Call& c) { c.options.outputs["y"].kind = PlacementKind::kArena; },
       Reason::kPlacementUnavailable, "options.outputs.y", "inline",
       absl::StatusCode::kFailedPrecondition},
      {"a broken order of inputs", [](Call& c) { std::swap(c.inputs[0], c.inputs[1]); },
       Reason::kInternal, "a", "", absl::StatusCode::kInternal},
      {"pieces that do not add up", [](Call& c) { c.inputs[0].data.pieces.pop_back(); },
       Reason::kInternal, "a", "", absl::StatusCode::kInternal},
  };
  for (const Refusal& refusal : kRefusals) {
    SCOPED_TRACE(refusal.what);
    Call call = Good();
    refusal.change(call);
    const auto checked = Check(call);
    ASSERT_FALSE(checked.ok());
    EXPECT_EQ(checked.status().code(), refusal.code) << checked.status();
    const auto detail = GetErrorDetail(checked.status());
    ASSERT_TRUE(detail.has_value());
    EXPECT_EQ(ReasonName(detail->reason), ReasonName(refusal.reason));
    EXPECT_EQ(detail->field, refusal.field);
    EXPECT_THAT(detail->allowed, testing::HasSubstr(refusal.allowed));
  }
}

TEST_F(ContractCheck, ErrorsNameTheValue) {
  Call call = Good();
  call.inputs[0] = ZeroTensor(Rich::kA, DType::kF64, {2, 3, 4});
  EXPECT_EQ(GetErrorDetail(Check(call).status())->value, "F64");
  call = Good();
  call.inputs[1] = ZeroTensor(Rich::kB, DType::kF32, {5});
  EXPECT_EQ(GetErrorDetail(Check(call).status())->value, "[5]");
}

TEST_F(ContractCheck, LimitsAreExact) {
  struct Case {
    const char* what;
    std::function<void(ContractCheckOptions&, int64_t delta)> set;  // the limit, off by delta
    Reason reason;
  };
  const int64_t request = 508, reply = 104;
  const Case kCases[] = {
      {"tensors", [](auto& o, int64_t d) { o.limits.tensors_per_call_max = 6 + d; },
       Reason::kLimitExceeded},
      {"rank", [](auto& o, int64_t d) { o.limits.rank_max = 3 + d; }, Reason::kRankTooLarge},
      {"bytes", [=](auto& o, int64_t d) { o.limits.call_bytes_max = request + reply + d; },
       Reason::kLimitExceeded},
      {"inline request", [=](auto& o, int64_t d) { o.limits.inline_bytes_max = request + d; },
       Reason::kMessageTooLarge},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.what);
    options_ = {};
    c.set(options_, 0);
    EXPECT_TRUE(Check(Good()).ok()) << Check(Good()).status();
    options_ = {};
    c.set(options_, -1);
    const auto refused = Check(Good());
    ASSERT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    const auto detail = GetErrorDetail(refused.status());
    EXPECT_EQ(ReasonName(detail->reason), ReasonName(c.reason));
    EXPECT_EQ(detail->retry_after_ms, 0);
  }
}

TEST_F(ContractCheck, RefusesRepliesThatDoNotFitAMessage) {
  // 24 bytes in, 48 bytes out.
  Call call;
  call.method = registry_->Find("toy.rich");
  call.inputs = {ZeroTensor(Rich::kA, DType::kBF16, {3, 4})};
  call.attributes = {{.spec = Rich::kRequired, .number = 1}};
  call.options.wanted_outputs = {"y"};
  options_.limits.inline_bytes_max = 48;
  EXPECT_TRUE(Check(call).ok());
  options_.limits.inline_bytes_max = 47;
  const auto detail = GetErrorDetail(Check(call).status());
  EXPECT_EQ(detail->reason, Reason::kMessageTooLarge);
  EXPECT_EQ(detail->field, "reply");
  EXPECT_EQ(detail->value, "48 bytes");
  EXPECT_EQ(detail->allowed, "at most 47 bytes (inline_bytes_max)");
  options_.refuse_large_replies = false;
  EXPECT_TRUE(Check(call).ok());

  // 3 rows in, 3 rows out, 16 bytes of digest each.
  options_.refuse_large_replies = true;
  call.options.digest_rows = true;
  options_.limits.inline_bytes_max = 48 + 6 * 16;
  EXPECT_TRUE(Check(call).ok());
  options_.limits.inline_bytes_max = 48 + 6 * 16 - 1;
  EXPECT_EQ(GetErrorDetail(Check(call).status())->reason, Reason::kMessageTooLarge);
}

TEST_F(ContractCheck, AnOutputTakesASizeFromAnAttribute) {
  MethodSignature signature = registry_->Find("toy.rich")->signature;
  DimPattern dim;
  dim.attribute = Rich::kCount;
  signature.outputs[Rich::kY].dims = {};
  signature.outputs[Rich::kY].dims.dims = {dim};
  Method method{registry_->Find("toy.rich")->decl, signature};
  Call call = Good();
  call.method = &method;
  call.options.wanted_outputs = {"y"};
  call.attributes.push_back({.spec = Rich::kCount, .integer = 16});
  const auto checked = Check(call);
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_EQ(checked->outputs[Rich::kY].shape, Dims({16}));
}

TEST_F(ContractCheck, AnOutputThatNothingBindsIsAnInternalError) {
  MethodSignature signature = registry_->Find("toy.rich")->signature;
  signature.outputs[Rich::kY].dims.dims = {{1, 'Q'}};
  Method method{registry_->Find("toy.rich")->decl, signature};
  Call call = Good();
  call.method = &method;
  EXPECT_EQ(Check(call).status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace rlk::server
