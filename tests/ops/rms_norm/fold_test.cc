// The weight gradient: sums of single rows, carries, and the two folds against each other.
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/ops/rms_norm/norm_call.h"

namespace rlk::test {
namespace {

std::vector<std::byte> Accumulator(const NormCall& call) {
  return RunNormCpu(call).at("dweight_acc");
}

NormCall Carried(NormCall call, const std::vector<std::byte>& carry, int64_t rows_before) {
  call.dweight_acc_in = MakeNormTensor(DType::kF32, {call.length()}, Floats(DType::kF32, carry));
  call.rows_before = rows_before;
  return call;
}

bool Chunked(const NormKind& kind) { return std::string(kind.contract) == "chunk128-v1"; }

TEST(NormFold, LeftFoldIsTheSumOfTheGradientsOfSingleRows) {
  for (const NormKind& kind : kNormKinds) {
    if (Chunked(kind)) continue;
    for (DType x : kNormDTypes) {
      const NormCall call = MakeNormCall(kind, true, x, x, x, 130, 37, 21);
      std::vector<float> sum(37, 0.0f);
      for (int64_t row = 0; row < 130; ++row) {
        const std::vector<float> one = Floats(DType::kF32, Accumulator(Rows(call, row, 1)));
        for (size_t h = 0; h < sum.size(); ++h) sum[h] = sum[h] + one[h];
      }
      EXPECT_EQ(Accumulator(call), MakeNormTensor(DType::kF32, {37}, sum).bytes) << NormName(call);
    }
  }
}

TEST(NormFold, LeftFoldIsCarriedAtAnyCut) {
  for (const NormKind& kind : kNormKinds) {
    if (Chunked(kind)) continue;
    const NormCall call =
        MakeNormCall(kind, true, DType::kBF16, DType::kF32, DType::kBF16, 150, 20, 2);
    if (!Allowed(kind, DType::kBF16, DType::kF32)) continue;
    const NormOutputs whole = RunNormCpu(call);
    for (int64_t cut : {0, 1, 64, 127, 128, 149, 150}) {
      const std::vector<std::byte> first = Accumulator(Rows(call, 0, cut));
      const NormOutputs both = RunNormCpu(Carried(Rows(call, cut, 150 - cut), first, cut));
      EXPECT_EQ(both.at("dweight_acc"), whole.at("dweight_acc")) << NormName(call) << " " << cut;
      EXPECT_EQ(both.at("grad_weight"), whole.at("grad_weight")) << NormName(call) << " " << cut;
    }
  }
}

TEST(NormFold, Chunk128IsCarriedAtMultiplesOf128) {
  int differs_elsewhere = 0;
  for (const NormKind& kind : kNormKinds) {
    if (!Chunked(kind)) continue;
    const NormCall call =
        MakeNormCall(kind, true, DType::kBF16, DType::kBF16, DType::kBF16, 700, 20, 2);
    const std::vector<std::byte> whole = Accumulator(call);
    for (int64_t cut : {0, 128, 384, 640}) {
      const std::vector<std::byte> first = Accumulator(Rows(call, 0, cut));
      EXPECT_EQ(Accumulator(Carried(Rows(call, cut, 700 - cut), first, cut)), whole) << cut;
    }
    const std::vector<std::byte> first = Accumulator(Rows(call, 0, 200));
    if (Accumulator(Carried(Rows(call, 200, 500), first, 0)) != whole) ++differs_elsewhere;
  }
  EXPECT_GT(differs_elsewhere, 0);
}

TEST(NormFold, TheFoldsAgreeUpTo128RowsAndDifferBeyond) {
  for (const NormKind& kind : kNormKinds) {
    if (!Chunked(kind)) continue;
    for (int64_t rows : {1, 2, 127, 128}) {
      NormCall call = MakeNormCall(kind, true, DType::kF32, DType::kF32, DType::kF32, rows, 50, 5);
      const NormOutputs chunked = RunNormCpu(call);
      call.contract = "leftfold-v1";
      ExpectSameOutputs(RunNormCpu(call), chunked, NormName(call));
    }
    NormCall call = MakeNormCall(kind, true, DType::kF32, DType::kF32, DType::kF32, 1000, 50, 5);
    const std::vector<std::byte> chunked = Accumulator(call);
    call.contract = "leftfold-v1";
    EXPECT_NE(Accumulator(call), chunked);
  }
}

TEST(NormFold, RowsOfZeroGradientChangeNothing) {
  for (const NormKind& kind : kNormKinds) {
    const NormCall call =
        MakeNormCall(kind, true, DType::kBF16, DType::kBF16, DType::kBF16, 100, 20, 2);
    NormCall padded = call;
    for (NormTensor* tensor : {&padded.x, &padded.gate, &padded.grad_y}) {
      if (!tensor->present()) continue;
      std::vector<float> values = NormValues(*tensor);
      values.resize(128 * 20, tensor == &padded.grad_y ? -0.0f : 3.0f);
      *tensor = MakeNormTensor(DType::kBF16, {128, 20}, values);
    }
    EXPECT_EQ(Accumulator(padded), Accumulator(call)) << NormName(call);
  }
}

TEST(NormFold, RowsOfZeroGradientTurnACarryOfMinusZeroAndSpreadNaN) {
  const std::vector<std::byte> minus =
      MakeNormTensor(DType::kF32, {20}, std::vector(20, -0.0f)).bytes;
  const std::vector<std::byte> plus =
      MakeNormTensor(DType::kF32, {20}, std::vector(20, 0.0f)).bytes;
  for (const NormKind& kind : kNormKinds) {
    NormCall call = MakeNormCall(kind, true, DType::kBF16, DType::kBF16, DType::kBF16, 3, 20, 2);
    call.grad_y = MakeNormTensor(DType::kBF16, {3, 20}, std::vector(60, 0.0f));
    EXPECT_EQ(Accumulator(Carried(Rows(call, 0, 0), minus, 0)), minus) << NormName(call);
    // A term is +0 or -0: some columns have a +0 among them. A block of chunk128 begins with one.
    const std::vector<std::byte> carried = Accumulator(Carried(call, minus, 0));
    if (Chunked(kind)) {
      EXPECT_EQ(carried, plus) << NormName(call);
    } else {
      EXPECT_NE(carried, minus) << NormName(call);
    }
    for (float value : Floats(DType::kF32, carried)) EXPECT_EQ(value, 0.0f) << NormName(call);
    // x = infinity: xh is infinity times +0.
    std::vector<float> values = NormValues(call.x);
    values[0] = INFINITY;
    call.x = MakeNormTensor(DType::kBF16, {3, 20}, values);
    const std::vector<float> found = Floats(DType::kF32, Accumulator(Carried(call, plus, 0)));
    EXPECT_TRUE(std::isnan(found[0])) << NormName(call);
    for (size_t h = 1; h < found.size(); ++h) EXPECT_EQ(found[h], 0.0f) << NormName(call);
  }
}

}  // namespace
}  // namespace rlk::test
