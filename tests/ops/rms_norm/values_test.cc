// The conventions that users lose training runs to, special values and refusals.
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/core/status.h"
#include "tests/ops/rms_norm/norm_call.h"

namespace rlk::test {
namespace {

TEST(NormValues, OffsetOneEqualsAnExplicitFp32WeightAndNotAFoldedBf16One) {
  for (const char* op : {"rms_norm", "rms_norm_gated"}) {
    for (bool backward : {false, true}) {
      NormCall offset =
          MakeNormCall(op, backward, DType::kBF16, DType::kBF16, DType::kBF16, 4, 64, 1);
      std::vector<float> w = NormValues(offset.weight);
      w[3] = 15.8125f;
      offset.weight = MakeNormTensor(DType::kBF16, {64}, w);
      offset.weight_offset = 1;
      if (backward) offset.wanted = {"grad_x"};
      NormCall explicit_weight = offset;
      for (float& v : w) v = v + 1.0f;
      explicit_weight.weight_offset = 0;
      explicit_weight.weight = MakeNormTensor(DType::kF32, {64}, w);
      const NormOutputs expected = RunNormCpu(offset);
      ExpectSameOutputs(RunNormCpu(explicit_weight), expected, NormName(offset));
      // 16.8125 has no BF16: it becomes 16.75 or 16.875.
      NormCall folded = explicit_weight;
      folded.weight = MakeNormTensor(DType::kBF16, {64}, w);
      ASSERT_NE(NormValues(folded.weight)[3], 16.8125f);
      EXPECT_NE(RunNormCpu(folded), expected);
    }
  }
}

TEST(NormValues, Qwen3NextIsRmsNormWithOffsetOne) {
  for (bool backward : {false, true}) {
    NormCall call =
        MakeNormCall("rms_norm", backward, DType::kBF16, DType::kBF16, DType::kBF16, 7, 200, 4);
    call.weight_offset = 1;
    const NormOutputs expected = RunNormCpu(call);
    call.op = "qwen3_next_rms_norm";
    call.weight_offset = 0;
    ExpectSameOutputs(RunNormCpu(call), expected, NormName(call));
  }
}

TEST(NormValues, NegativeZeroWeightsStayWithoutOffset) {
  for (DType dtype : kNormDTypes) {
    for (double offset : {0.0, -0.0}) {
      NormCall call = MakeNormCall("rms_norm", false, dtype, dtype, dtype, 1, 16, 4);
      call.x = MakeNormTensor(dtype, {1, 16}, std::vector<float>(16, 2.0f));
      call.weight = MakeNormTensor(dtype, {16}, std::vector<float>(16, -0.0f));
      call.weight_offset = offset;
      for (float y : Floats(dtype, RunNormCpu(call).at("y"))) {
        EXPECT_EQ(y, 0.0f);
        EXPECT_TRUE(std::signbit(y));
      }
    }
  }
}

TEST(NormValues, TheGatedStatisticIsThePlainOne) {
  for (DType dtype : kNormDTypes) {
    for (int64_t length : {1, 128, 2048, 5120}) {
      for (int64_t activation : {1, 3}) {
        NormCall gated = MakeNormCall("rms_norm_gated", false, dtype, dtype, dtype, 3, length, 8);
        gated.activation = activation;
        const NormCall plain = MakeNormCall("rms_norm", false, dtype, dtype, dtype, 3, length, 8);
        EXPECT_EQ(RunNormCpu(gated).at("rstd"), RunNormCpu(plain).at("rstd"));
      }
    }
  }
}

TEST(NormValues, SwishIsSilu) {
  NormCall call =
      MakeNormCall("rms_norm_gated", true, DType::kF16, DType::kF16, DType::kF16, 3, 99, 8);
  const NormOutputs silu = RunNormCpu(call);
  call.activation = 2;
  ExpectSameOutputs(RunNormCpu(call), silu, "swish");
}

TEST(NormValues, GatedHfOfFp32EqualsLeftFoldAndDiffersInBf16) {
  NormCall call =
      MakeNormCall("rms_norm_gated", false, DType::kF32, DType::kF32, DType::kF32, 9, 128, 3);
  const NormOutputs expected = RunNormCpu(call);
  call.contract = "hf-v1";
  ExpectSameOutputs(RunNormCpu(call), expected, NormName(call));
  call =
      MakeNormCall("rms_norm_gated", false, DType::kBF16, DType::kBF16, DType::kBF16, 64, 128, 3);
  const std::vector<float> ours = Floats(DType::kBF16, RunNormCpu(call).at("y"));
  call.contract = "hf-v1";
  const std::vector<float> theirs = Floats(DType::kBF16, RunNormCpu(call).at("y"));
  int differing = 0;
  for (size_t i = 0; i < ours.size(); ++i) differing += ours[i] != theirs[i] ? 1 : 0;
  // About a third: the casts before the weight and before the gate.
  EXPECT_GT(differing, static_cast<int>(ours.size()) / 4);
  EXPECT_LT(differing, static_cast<int>(ours.size()) / 2);
}

TEST(NormValues, TheSavedStatisticGivesTheRecomputedBits) {
  for (const NormKind& kind : kNormKinds) {
    NormCall call = MakeNormCall(kind, true, DType::kBF16, DType::kBF16, DType::kF32, 6, 320, 12);
    const NormOutputs recomputed = RunNormCpu(call);
    NormCall forward = call;
    forward.backward = false;
    call.rstd =
        MakeNormTensor(DType::kF32, {6}, Floats(DType::kF32, RunNormCpu(forward).at("rstd")));
    ExpectSameOutputs(RunNormCpu(call), recomputed, NormName(call));
  }
}

TEST(NormValues, HugeRowsOverflowToZeroAndTinyRowsDoNot) {
  NormCall call = MakeNormCall("rms_norm", false, DType::kF32, DType::kF32, DType::kF32, 2, 64, 3);
  std::vector<float> x(128, 1e19f);
  std::fill_n(x.begin() + 64, 64, 1e-30f);
  call.x = MakeNormTensor(DType::kF32, {2, 64}, x);
  call.weight = MakeNormTensor(DType::kF32, {64}, std::vector<float>(64, 1.0f));
  call.eps = 1e-6;
  const std::vector<float> y = Floats(DType::kF32, RunNormCpu(call).at("y"));
  const std::vector<double> gold = RunNormGolden(call).at("y");
  // The sum of squares is 6.4e39: above FP32.
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_NEAR(gold[0], 1.0, 1e-6);
  EXPECT_NEAR(y[64], gold[64], 1e-6 * gold[64]);
}

TEST(NormValues, NanAndInfinityStayInTheirRow) {
  for (const NormKind& kind : kNormKinds) {
    for (bool backward : {false, true}) {
      const NormCall clean =
          MakeNormCall(kind, backward, DType::kBF16, DType::kBF16, DType::kBF16, 5, 70, 3);
      const char* output = backward ? "grad_x" : "y";
      const std::vector<float> expected = Floats(DType::kBF16, RunNormCpu(clean).at(output));
      for (float bad : {NAN, INFINITY, -INFINITY}) {
        NormCall call = clean;
        std::vector<float> x = NormValues(clean.x);
        x[2 * 70 + 11] = bad;
        call.x = MakeNormTensor(DType::kBF16, call.x.shape, x);
        const std::vector<float> got = Floats(DType::kBF16, RunNormCpu(call).at(output));
        EXPECT_TRUE(std::isnan(got[2 * 70 + 11])) << NormName(call);
        for (size_t i = 0; i < got.size(); ++i) {
          if (i / 70 == 2) continue;
          EXPECT_EQ(got[i], expected[i]) << NormName(call);
        }
      }
    }
  }
}

ErrorDetail RefusalOf(const NormCall& call) {
  const Method* method = OpRegistry().Find(call.method());
  BoundNorm bound(
      *method, call, [](const NormTensor& t) { return t.bytes.data(); }, DType::kUnspecified);
  const absl::Status status = method->decl.validate(bound.args());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return GetErrorDetail(status).value_or(ErrorDetail{});
}

TEST(NormValues, RefusesByName) {
  const NormKind plain_hf{"rms_norm", "hf-v1", 0, 1}, gated_hf{"rms_norm_gated", "hf-v1", 0, 1};
  const NormKind chunked{"rms_norm_gated", "chunk128-v1", 0, 1};
  const auto make = [](const NormKind& kind, DType weight, int64_t length) {
    return MakeNormCall(kind, true, DType::kBF16, weight, DType::kBF16, 1, length, 1);
  };
  ErrorDetail detail = RefusalOf(make(plain_hf, DType::kF32, 8));
  EXPECT_EQ(detail.reason, Reason::kDtypeNotAllowed);
  EXPECT_EQ(detail.field, "weight");

  for (const NormKind& kind : {plain_hf, gated_hf}) {
    NormCall call = make(kind, DType::kBF16, 8);
    call.weight_offset = 1;
    detail = RefusalOf(call);
    EXPECT_EQ(detail.reason, Reason::kAttributeOutOfRange);
    EXPECT_EQ(detail.field, "weight_offset");
  }
  NormCall sigmoid = make(gated_hf, DType::kF32, 8);
  sigmoid.activation = 3;
  detail = RefusalOf(sigmoid);
  EXPECT_EQ(detail.field, "activation");
  EXPECT_EQ(detail.allowed, "silu, swish");

  NormCall carried = make(chunked, DType::kF32, 8);
  carried.rows_before = 130;
  detail = RefusalOf(carried);
  EXPECT_EQ(detail.field, "rows_before");
  EXPECT_EQ(detail.value, "130");

  detail = RefusalOf(make({"qwen3_next_rms_norm", "leftfold-v1", 1, 1}, DType::kF32, 65537));
  EXPECT_EQ(detail.reason, Reason::kShapeMismatch);
  EXPECT_EQ(detail.field, "x");
}

}  // namespace
}  // namespace rlk::test
