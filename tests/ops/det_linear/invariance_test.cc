// A row's bits depend on that row alone; threads, and which outputs are wanted, never matter.
// Parameter gradients are folds over rows in order, and can be carried.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "gtest/gtest.h"
#include "tests/ops/det_linear/linear_call.h"

namespace rlk::test {
namespace {

constexpr const char* kForward = kLinearMethods[0];
constexpr const char* kBackwardWeight = kLinearMethods[2];

// Outputs of one row.
OpOutputs RowOf(const OpOutputs& outputs, int64_t row, int64_t rows) {
  OpOutputs cut;
  for (const auto& [name, bytes] : outputs) {
    const auto size = static_cast<int64_t>(bytes.size()) / rows;
    cut[name] = {bytes.begin() + row * size, bytes.begin() + (row + 1) * size};
  }
  return cut;
}

class LinearRowInvariance : public testing::TestWithParam<const char*> {};

TEST_P(LinearRowInvariance, ARowAloneEqualsTheRowInAnyBatch) {
  for (const auto& [outputs, inputs] : {std::pair{65, 132}, std::pair{17, 1044}}) {
    const OpCall all = MakeLinearCall(GetParam(), {257, outputs, inputs}, kSilu, true, 3);
    const OpOutputs whole = RunOpCpu(all);
    for (int64_t rows = 1; rows <= 65; ++rows) {
      const OpOutputs part = RunOpCpu(LinearRowsOf(all, 0, rows));
      for (int64_t row : {int64_t{0}, rows / 2, rows - 1}) {
        ExpectSameOp(RowOf(part, row, rows), RowOf(whole, row, 257),
                     std::string(GetParam()) + " in " + std::to_string(rows));
      }
      ExpectSameOp(RunOpCpu(LinearRowsOf(all, rows, 1)), RowOf(whole, rows, 257),
                   std::string(GetParam()) + " alone");
    }
  }
}

TEST_P(LinearRowInvariance, OrderAndNeighboursDoNotMatter) {
  const int64_t rows = 65;
  const OpCall call = MakeLinearCall(GetParam(), {rows, 33, 36}, kSilu, true, 8);
  const OpOutputs straight = RunOpCpu(call);
  std::vector<int64_t> order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(4));
  OpCall permuted = call, changed = call;
  for (const char* name : {"x", "grad_y", "pre"}) {
    if (!call.input(name).present()) continue;
    OpTensor& moved = permuted.inputs[name];
    moved.bytes.clear();
    for (int64_t row : order) {
      const std::vector<std::byte> one = OpRows(call.input(name), row, 1).bytes;
      moved.bytes.insert(moved.bytes.end(), one.begin(), one.end());
    }
    std::vector<float> values = OpValues(call.input(name));
    const size_t width = values.size() / static_cast<size_t>(rows);
    for (size_t i = 0; i < values.size(); ++i) {
      if (i / width != 30) values[i] = i % 2 == 0 ? NAN : INFINITY;
    }
    changed.inputs[name] = MakeOpTensor(DType::kF32, moved.shape, values);
  }
  const OpOutputs other = RunOpCpu(permuted);
  for (int64_t i = 0; i < rows; ++i) {
    ExpectSameOp(RowOf(other, i, rows), RowOf(straight, order[static_cast<size_t>(i)], rows),
                 GetParam());
  }
  ExpectSameOp(RowOf(RunOpCpu(changed), 30, rows), RowOf(straight, 30, rows),
               std::string(GetParam()) + " beside NaN");
}

// Output n depends on row n of weight alone.
TEST(LinearInvariance, AnOutputAloneEqualsTheOutputAmongOthers) {
  const OpCall call = MakeLinearCall(kForward, {5, 65, 132}, kSilu, true, 3);
  const OpOutputs whole = RunOpCpu(call);
  const std::vector<float> y = OpValues(DType::kF32, whole.at("y"));
  for (int64_t n = 0; n < 65; ++n) {
    OpCall one = call;
    one.inputs["weight"] = OpRows(call.input("weight"), n, 1);
    one.inputs["bias"] = OpRows(call.input("bias"), n, 1);
    const std::vector<float> column = OpValues(DType::kF32, RunOpCpu(one).at("y"));
    for (size_t t = 0; t < 5; ++t) EXPECT_EQ(column[t], y[t * 65 + static_cast<size_t>(n)]);
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, LinearRowInvariance,
                         testing::Values(kLinearMethods[0], kLinearMethods[1]));

class LinearInvariance : public testing::TestWithParam<const char*> {};

TEST_P(LinearInvariance, ThreadsAndRepetitionDoNotMatter) {
  for (const LinearSize& size : {LinearSize{9, 300, 1044}, LinearSize{200, 200, 260}}) {
    const OpCall call = MakeLinearCall(GetParam(), size, kSilu, true, 2);
    const OpOutputs straight = RunOpCpu(call);
    for (int threads : {2, 3, 8}) {
      ThreadPool pool(threads);
      ExpectSameOp(RunOpCpu(call, &pool), straight, LinearName(call, size) + " on threads");
    }
    ExpectSameOp(RunOpCpu(call), straight, LinearName(call, size) + " again");
  }
}

TEST_P(LinearInvariance, AnOutputDoesNotDependOnWhichOthersAreWanted) {
  for (int64_t activation : {kNoActivation, kSilu}) {
    const OpCall call = MakeLinearCall(GetParam(), {9, 33, 40}, activation, true, 6);
    for (const auto& [name, bytes] : RunOpCpu(call)) {
      OpCall one = call;
      one.wanted = {name};
      ExpectSameOp(RunOpCpu(one), {{name, bytes}}, call.method + " " + name);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, LinearInvariance, testing::ValuesIn(kLinearMethods));

TEST(LinearFold, IsCarriedAtAnyRow) {
  const int64_t rows = 150;
  for (int64_t activation : {kNoActivation, kSilu}) {
    for (bool carried : {false, true}) {
      const OpCall call = MakeLinearCall(kBackwardWeight, {rows, 17, 20}, activation, carried, 2);
      const OpOutputs whole = RunOpCpu(call);
      for (int64_t cut : {1, 64, 65, 127, 149}) {
        const OpOutputs first = RunOpCpu(LinearRowsOf(call, 0, cut));
        OpCall rest = LinearRowsOf(call, cut, rows - cut);
        rest.inputs["dweight_acc_in"] = {DType::kF32, {17, 20}, first.at("dweight_acc")};
        rest.inputs["dbias_acc_in"] = {DType::kF32, {17}, first.at("dbias_acc")};
        rest.integers["rows_before"] = cut;
        ExpectSameOp(RunOpCpu(rest), whole, "cut at " + std::to_string(cut));
      }
    }
  }
}

// The bias's gradient is a left fold of terms: the sum of the gradients of single rows. That of the
// weight is a chain of FMAs, and is not.
TEST(LinearFold, TheBiasGradientIsTheSumOfTheGradientsOfSingleRows) {
  const OpCall call = MakeLinearCall(kBackwardWeight, {130, 65, 36}, kSilu, false, 21);
  std::vector<float> db(65, 0.0f), dw(65 * 36, 0.0f);
  for (int64_t row = 0; row < 130; ++row) {
    const OpOutputs one = RunOpCpu(LinearRowsOf(call, row, 1));
    const std::vector<float> bias = OpValues(DType::kF32, one.at("dbias_acc"));
    const std::vector<float> weight = OpValues(DType::kF32, one.at("dweight_acc"));
    for (size_t n = 0; n < db.size(); ++n) db[n] = db[n] + bias[n];
    for (size_t i = 0; i < dw.size(); ++i) dw[i] = dw[i] + weight[i];
  }
  const OpOutputs whole = RunOpCpu(call);
  EXPECT_EQ(whole.at("dbias_acc"), MakeOpTensor(DType::kF32, {65}, db).bytes);
  EXPECT_NE(whole.at("dweight_acc"), MakeOpTensor(DType::kF32, {65, 36}, dw).bytes);
}

// Data whose sum shows its order: ascending rows give 1, any other order of the large ones not.
TEST(LinearFold, RowsAreAddedInAscendingOrder) {
  OpCall call = MakeLinearCall(kBackwardWeight, {3, 1, 4}, kNoActivation, false, 1);
  call.inputs["grad_y"] = MakeOpTensor(DType::kF32, {3, 1}, {0x1p30f, -0x1p30f, 1});
  call.inputs["x"] = MakeOpTensor(DType::kF32, {3, 4}, std::vector<float>(12, 1.0f));
  const OpOutputs outputs = RunOpCpu(call);
  EXPECT_EQ(OpValues(DType::kF32, outputs.at("grad_weight")), std::vector<float>(4, 1.0f));
  EXPECT_EQ(OpValues(DType::kF32, outputs.at("grad_bias")), std::vector<float>(1, 1.0f));
  call.inputs["grad_y"] = MakeOpTensor(DType::kF32, {3, 1}, {0x1p30f, 1, -0x1p30f});
  EXPECT_EQ(OpValues(DType::kF32, RunOpCpu(call).at("grad_weight")), std::vector<float>(4, 0.0f));
}

// The same for the chunks of 64 outputs: cancellation inside a chunk keeps the small term that
// cancellation across chunks loses.
TEST(LinearFold, OutputsAreAddedInChunksOf64) {
  OpCall call = MakeLinearCall(kLinearMethods[1], {1, 128, 4}, kNoActivation, false, 1);
  call.inputs["weight"] = MakeOpTensor(DType::kF32, {128, 4}, std::vector<float>(512, 1.0f));
  std::vector<float> g(128, 0.0f);
  g[64] = 1;  // alone in its chunk with the two below, or not
  g[0] = 0x1p30f;
  g[65] = -0x1p30f;
  call.inputs["grad_y"] = MakeOpTensor(DType::kF32, {1, 128}, g);
  EXPECT_EQ(OpValues(DType::kF32, RunOpCpu(call).at("grad_x"))[0], 0.0f);
  std::swap(g[0], g[66]);
  call.inputs["grad_y"] = MakeOpTensor(DType::kF32, {1, 128}, g);
  // 1 - 2^30 rounds to -2^30, and then 2^30 gives 0 again; with the 1 last it stays.
  std::swap(g[64], g[67]);
  call.inputs["grad_y"] = MakeOpTensor(DType::kF32, {1, 128}, g);
  EXPECT_EQ(OpValues(DType::kF32, RunOpCpu(call).at("grad_x"))[0], 1.0f);
}

}  // namespace
}  // namespace rlk::test
