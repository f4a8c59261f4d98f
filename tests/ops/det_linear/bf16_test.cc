// Contract h3-det-linear-bf16-mma-v1 on the cpu backend: against an emulation written from its text
// and the law of the tensor-core step, bit for bit; rows, accuracy, refusals.
#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/registry/golden_variant.h"
#include "tests/ops/det_linear/bf16_emulation.h"
#include "tests/ops/det_linear/linear_call.h"

namespace rlk::test {
namespace {

OpCall MakeBf16Call(const std::string& method, LinearSize size, int64_t activation, DType wide,
                    uint32_t seed) {
  return MakeBf16LinearCall(kBf16LinearContract, method, size, activation, wide, true, seed);
}

OpOutputs EmulateBf16(const OpCall& call, LinearSize size) {
  const auto rows = static_cast<size_t>(size.rows), outputs = static_cast<size_t>(size.outputs),
             inputs = static_cast<size_t>(size.inputs);
  if (call.method == kLinearMethods[0]) {
    const std::vector<uint16_t> x = Bits(call.input("x")), w = Bits(call.input("weight"));
    const std::vector<float> bias = OpValues(call.input("bias"));
    std::vector<float> pre(rows * outputs), y(rows * outputs);
    for (size_t i = 0; i < pre.size(); ++i) {
      const size_t t = i / outputs, n = i % outputs;
      pre[i] = EmulatedBf16Dot(&x[t * inputs], &w[n * inputs], inputs) + bias[n];
      y[i] = call.integers.at("activation") == kSilu ? EmulatedSilu(pre[i]) : pre[i];
    }
    const auto dtype = static_cast<DType>(call.integers.at("output_dtype"));
    return {{"pre", StoredF32(pre)}, {"y", Stored(dtype, y)}};
  }
  const std::vector<float> g = EmulatedGradient(call);
  if (call.method == kLinearMethods[1]) {
    const auto dtype = static_cast<DType>(call.integers.at("output_dtype"));
    return {{"grad_x", Stored(dtype, EmulatedGradX(g, OpValues(call.input("weight")), rows, outputs,
                                                   inputs))}};
  }
  std::vector<float> dw = OpValues(call.input("dweight_acc_in"));
  std::vector<float> db = OpValues(call.input("dbias_acc_in"));
  EmulatedWeightFold(g, OpValues(call.input("x")), rows, dw, db);
  return {{"grad_weight", Stored(DType::kBF16, dw)},
          {"dweight_acc", StoredF32(dw)},
          {"grad_bias", Stored(DType::kBF16, db)},
          {"dbias_acc", StoredF32(db)}};
}

class Bf16Linear : public testing::TestWithParam<const char*> {};

TEST_P(Bf16Linear, EqualsTheContract) {
  uint32_t seed = 1;
  for (int64_t outputs : {1, 3, 17, 33, 65, 90}) {
    for (int64_t inputs : {8, 16, 40, 264, 1032}) {
      for (int64_t rows : {1, 2, 3, 5, 8, 9, 17, 64, 65}) {
        if (rows > 9 && inputs > 264) continue;
        const LinearSize size = {rows, outputs, inputs};
        const OpCall call = MakeBf16Call(GetParam(), size, seed % 2 == 0 ? kSilu : kNoActivation,
                                         seed % 4 < 2 ? DType::kF32 : DType::kBF16, seed);
        seed += 11;
        const OpOutputs expected = EmulateBf16(call, size);
        ExpectSameOp(RunOpCpu(call), expected, LinearName(call, size));
        for (Isa isa : AvailableIsas()) {
          ExpectSameOp(RunBf16LinearIsa(call, isa), expected, LinearName(call, size));
        }
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Infinities, NaN, overflow, subnormals and zeros of both signs among numbers.
TEST_P(Bf16Linear, ExtremeValuesFollowTheOperations) {
  const float extremes[] = {0.0f,   -0.0f,  1e-30f,   -1e-40f,   1e19f, -1e19f, 3e38f,
                            1e-39f, -3e38f, INFINITY, -INFINITY, NAN,   1.0f,   -1e-39f};
  const LinearSize size = {28, 70, 144};
  for (int64_t activation : {kNoActivation, kSilu}) {
    OpCall call = MakeBf16Call(GetParam(), size, activation, DType::kF32, 5);
    for (auto& [name, tensor] : call.inputs) {
      std::vector<float> values = OpValues(tensor);
      const auto width = static_cast<size_t>(tensor.shape[tensor.shape.rank() - 1]);
      for (size_t i = 0; i < values.size(); ++i) {
        const size_t row = i / width;
        if (i % 11 == 3 && row % 3 != 0) values[i] = extremes[(row / 2 + i) % 14];
      }
      tensor = MakeOpTensor(tensor.dtype, tensor.shape, values);
    }
    const OpOutputs expected = EmulateBf16(call, size);
    for (Isa isa : AvailableIsas()) {
      ExpectSameOp(RunBf16LinearIsa(call, isa), expected, LinearName(call, size));
    }
  }
}

TEST_P(Bf16Linear, ThreadsDoNotMatter) {
  ThreadPool pool(3);
  const LinearSize size = {67, 331, 136};
  const OpCall call = MakeBf16Call(GetParam(), size, kSilu, DType::kBF16, 9);
  ExpectSameOp(RunOpCpu(call, &pool), RunOpCpu(call), LinearName(call, size));
}

INSTANTIATE_TEST_SUITE_P(Methods, Bf16Linear, testing::ValuesIn(kLinearMethods));

TEST(Bf16LinearRows, ARowAloneEqualsTheRowInAnyBatch) {
  const LinearSize all_size = {257, 33, 136};
  const OpCall all = MakeBf16Call(kLinearMethods[0], all_size, kSilu, DType::kBF16, 3);
  const OpOutputs whole = RunOpCpu(all);
  for (int64_t rows = 1; rows <= 130; ++rows) {
    const OpOutputs part = RunOpCpu(LinearRowsOf(all, 0, rows));
    for (int64_t row : {int64_t{0}, rows / 2, rows - 1}) {
      ExpectSameOp(LinearOutputRow(part, row, rows), LinearOutputRow(whole, row, 257),
                   std::to_string(rows));
    }
    ExpectSameOp(RunOpCpu(LinearRowsOf(all, rows, 1)), LinearOutputRow(whole, rows, 257), "alone");
  }
}

// At least 0.9995 of the outputs are FP64's, rounded once; a sum without the promotion is not.
TEST(Bf16LinearAccuracy, OutputsAreCorrectlyRounded) {
  const LinearSize size = {16, 512, 2688};
  const OpCall call = MakeBf16Call(kLinearMethods[0], size, kNoActivation, DType::kBF16, 21);
  const std::vector<uint16_t> got = [&] {
    const OpOutputs outputs = RunOpCpu(call);
    std::vector<uint16_t> bits(outputs.at("y").size() / 2);
    memcpy(bits.data(), outputs.at("y").data(), outputs.at("y").size());
    return bits;
  }();
  const std::vector<double> gold = RunOpGolden(call).at("y");
  size_t wrong = 0;
  for (size_t i = 0; i < got.size(); ++i) wrong += got[i] != RoundF64ToBf16(gold[i]);
  EXPECT_LE(wrong, got.size() * 5 / 10000) << got.size();
}

TEST(Bf16LinearValues, RefusesByName) {
  const auto refuse = [](LinearSize size) {
    return OpRefusal(MakeBf16Call(kLinearMethods[0], size, kNoActivation, DType::kBF16, 1));
  };
  EXPECT_EQ(refuse({2, 3, 12}).value, "K = 12");
  EXPECT_EQ(refuse({2, 3, 12}).allowed, "a multiple of 8, K >= 8");
  EXPECT_EQ(refuse({0, 3, 8}).field, "x");
  OpCall call = MakeBf16Call(kLinearMethods[0], {2, 3, 8}, kNoActivation, DType::kBF16, 1);
  call.integers["fold_parts"] = 4;
  EXPECT_EQ(OpRefusal(call).field, "fold_parts");
}

}  // namespace
}  // namespace rlk::test
