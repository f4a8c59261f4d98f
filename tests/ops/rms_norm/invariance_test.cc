// A row's bits depend on that row alone; strides, alignment and threads never matter.
#include <algorithm>
#include <numeric>

#include "gtest/gtest.h"
#include "tests/ops/rms_norm/norm_call.h"

namespace rlk::test {
namespace {

// The outputs that belong to rows.
NormOutputs RowOutputs(const NormOutputs& outputs, int64_t row, int64_t rows) {
  NormOutputs cut;
  for (const auto& [name, bytes] : outputs) {
    if (name == "grad_weight" || name == "dweight_acc") continue;
    const auto size = static_cast<int64_t>(bytes.size()) / rows;
    cut[name] = {bytes.begin() + row * size, bytes.begin() + (row + 1) * size};
  }
  return cut;
}

// Rows in the order that `rows` names.
NormCall Permuted(const NormCall& call, const std::vector<int64_t>& rows) {
  NormCall permuted = call;
  const auto order = [&](NormTensor& tensor) {
    if (!tensor.present()) return;
    const std::vector<float> values = NormValues(tensor);
    std::vector<float> moved;
    for (int64_t row : rows) {
      moved.insert(moved.end(), values.begin() + row * call.length(),
                   values.begin() + (row + 1) * call.length());
    }
    tensor =
        MakeNormTensor(tensor.dtype, {static_cast<int64_t>(rows.size()), call.length()}, moved);
  };
  order(permuted.x);
  order(permuted.gate);
  order(permuted.grad_y);
  return permuted;
}

struct Direction {
  NormKind kind;
  bool backward;
};

std::vector<Direction> Directions() {
  std::vector<Direction> directions;
  for (const NormKind& kind : kNormKinds) {
    for (bool backward : {false, true}) directions.push_back({kind, backward});
  }
  return directions;
}

class NormInvariance : public testing::TestWithParam<Direction> {
 protected:
  NormCall Make(DType x, int64_t rows, int64_t length, uint32_t seed) const {
    return MakeNormCall(GetParam().kind, GetParam().backward, x, x, x, rows, length, seed);
  }
};

TEST_P(NormInvariance, ARowAloneEqualsTheRowInAnyBatch) {
  for (int64_t length : {33, 300}) {
    const NormCall all = Make(DType::kBF16, 257, length, 3);
    const NormOutputs whole = RunNormCpu(all);
    for (int64_t rows = 1; rows <= 65; ++rows) {
      const NormOutputs part = RunNormCpu(Rows(all, 0, rows));
      for (int64_t row : {int64_t{0}, rows - 1}) {
        ExpectSameOutputs(RowOutputs(part, row, rows), RowOutputs(whole, row, 257),
                          NormName(all) + " in " + std::to_string(rows));
      }
      ExpectSameOutputs(RowOutputs(RunNormCpu(Rows(all, rows, 1)), 0, 1),
                        RowOutputs(whole, rows, 257), NormName(all) + " alone");
    }
  }
}

TEST_P(NormInvariance, OrderAndNeighboursDoNotMatter) {
  const NormCall call = Make(DType::kF16, 65, 129, 8);
  const NormOutputs straight = RunNormCpu(call);
  std::vector<int64_t> order(65);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(4));
  const NormOutputs permuted = RunNormCpu(Permuted(call, order));
  for (int64_t i = 0; i < 65; ++i) {
    ExpectSameOutputs(RowOutputs(permuted, i, 65),
                      RowOutputs(straight, order[static_cast<size_t>(i)], 65), NormName(call));
  }
  NormCall changed = call;
  std::vector<float> values = NormValues(call.x);
  for (size_t i = 0; i < values.size(); ++i) {
    if (i / 129 != 30) values[i] = i % 2 == 0 ? NAN : INFINITY;
  }
  changed.x = MakeNormTensor(DType::kF16, call.x.shape, values);
  ExpectSameOutputs(RowOutputs(RunNormCpu(changed), 30, 65), RowOutputs(straight, 30, 65),
                    NormName(call) + " beside NaN");
}

TEST_P(NormInvariance, StridesAlignmentShapeAndThreadsDoNotMatter) {
  for (DType dtype : kNormDTypes) {
    NormCall call = Make(dtype, 12, 600, 2);
    if (call.backward) {
      call.dweight_acc_in = MakeNormTensor(DType::kF32, {600}, NormalRow(600, 9.0f, 1));
    }
    const NormOutputs straight = RunNormCpu(call);
    const auto with = [&](const auto& change, const char* what) {
      NormCall other = call;
      other.x = change(call.x);
      other.weight = change(call.weight);
      other.gate = change(call.gate);
      other.grad_y = change(call.grad_y);
      other.dweight_acc_in = change(call.dweight_acc_in);
      ExpectSameOutputs(RunNormCpu(other), straight, NormName(call) + what);
    };
    with([](const NormTensor& t) { return Spread(t, 1, 5); }, " padded");
    with([](const NormTensor& t) { return Spread(t, 3, 1); }, " strided");
    with([](const NormTensor& t) { return Unaligned(t); }, " unaligned");
    NormCall shaped = call;
    for (NormTensor* tensor : {&shaped.x, &shaped.gate, &shaped.grad_y}) {
      if (tensor->present()) {
        tensor->shape = {2, 1, 6, 600};
        tensor->strides = ContiguousStrides(tensor->shape);
      }
    }
    ExpectSameOutputs(RunNormCpu(shaped), straight, NormName(call) + " in 4 dimensions");
    ThreadPool pool(3);
    ExpectSameOutputs(RunNormCpu(call, &pool), straight, NormName(call) + " on threads");
  }
}

TEST_P(NormInvariance, AnOutputDoesNotDependOnWhichOthersAreWanted) {
  const NormCall call = Make(DType::kBF16, 9, 40, 6);
  for (const auto& [name, bytes] : RunNormCpu(call)) {
    NormCall one = call;
    one.wanted = {name};
    ExpectSameOutputs(RunNormCpu(one), {{name, bytes}}, NormName(call) + " " + name);
  }
}

TEST_P(NormInvariance, NoRowsGiveTheCarryOrZero) {
  NormCall call = Make(DType::kBF16, 1, 24, 6);
  for (NormTensor* tensor : {&call.x, &call.gate, &call.grad_y}) {
    if (tensor->present()) *tensor = MakeNormTensor(DType::kBF16, {0, 24}, {});
  }
  NormOutputs outputs = RunNormCpu(call);
  if (!call.backward) {
    EXPECT_TRUE(outputs["y"].empty() && outputs["rstd"].empty());
    return;
  }
  EXPECT_EQ(outputs["dweight_acc"], std::vector<std::byte>(24 * 4));
  EXPECT_EQ(outputs["grad_weight"], std::vector<std::byte>(24 * 2));
  call.dweight_acc_in = MakeNormTensor(DType::kF32, {24}, NormalRow(24, 1.0f, 2));
  outputs = RunNormCpu(call);
  EXPECT_EQ(outputs["dweight_acc"], call.dweight_acc_in.bytes);
}

INSTANTIATE_TEST_SUITE_P(Kinds, NormInvariance, testing::ValuesIn(Directions()));

}  // namespace
}  // namespace rlk::test
