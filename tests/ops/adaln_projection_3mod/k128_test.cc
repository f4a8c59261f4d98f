// adaln_projection_3mod/k128-v1 on the cpu backend: against the emulation, bit for bit; rows,
// parts, gradients, accuracy, refusals.
#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/registry/golden_variant.h"
#include "kernels/registry/selector.h"
#include "tests/ops/adaln_projection_3mod/adaln_call.h"

namespace rlk::test {
namespace {

OpCall MakeCall(const std::string& method, AdalnSize size, DType grad, uint32_t seed) {
  return MakeAdalnCall(method, size, DType::kBF16, grad, seed, adaln::kK128Contract);
}

class AdalnK128 : public testing::TestWithParam<const char*> {};

TEST_P(AdalnK128, EqualsTheContract) {
  uint32_t seed = 1;
  for (int64_t width : {1, 5, 33}) {
    for (int64_t inputs : {8, 136, 264}) {
      for (int64_t rows : {1, 7, 65, 130}) {
        if (rows * width * inputs > 12000) continue;
        const AdalnSize size = {rows, width, inputs};
        const OpCall call =
            MakeCall(GetParam(), size, seed % 2 == 0 ? DType::kF32 : DType::kBF16, seed);
        seed += 11;
        const OpOutputs expected = EmulateAdaln(call, size);
        for (Isa isa : AvailableIsas()) {
          ExpectSameOp(RunAdalnIsa(call, isa), expected, AdalnName(call, size));
        }
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(AdalnK128, PartsEqualTheContract) {
  // Reductions of 512 forward and of 2,304 = 18 * 128 backward.
  const bool backward = std::string(GetParam()) == kAdalnMethods[2];
  const AdalnSize size = backward ? AdalnSize{2, 128, 16} : AdalnSize{2, 8, 512};
  for (int64_t parts : {1, 2, 4}) {
    OpCall call = MakeCall(GetParam(), size, DType::kF32, 3);
    call.integers["fold_parts"] = parts;
    if (backward) {
      call.wanted = {"grad_temb"};
      if (parts == 4) {
        const ErrorDetail detail = OpRefusal(call);
        EXPECT_EQ(detail.field, "fold_parts");
        EXPECT_EQ(detail.allowed, "0, 1, 2");
        continue;
      }
    }
    OpOutputs expected = EmulateAdaln(call, size);
    if (!call.wanted.empty()) expected = {{"grad_temb", expected.at("grad_temb")}};
    ExpectSameOp(RunOpCpu(call), expected, AdalnName(call, size));
  }
}

TEST_P(AdalnK128, ThreadsAndSingleOutputsDoNotMatter) {
  ThreadPool pool(3);
  const AdalnSize size = {67, 19, 72};
  OpCall call = MakeCall(GetParam(), size, DType::kF32, 9);
  const OpOutputs expected = RunOpCpu(call);
  ExpectSameOp(RunOpCpu(call, &pool), expected, AdalnName(call, size));
  for (const auto& [name, bytes] : expected) {
    call.wanted = {name};
    ExpectSameOp(RunOpCpu(call, &pool), {{name, bytes}}, name);
  }
}

// Fewer of the gradients, and those FP32 that BF16 holds, change nothing that they do not stand
// for.
TEST(AdalnK128Gradients, AbsentOnesAreZerosAndWideOnesThatBf16HoldsAreBf16) {
  const AdalnSize size = {5, 6, 24};
  OpCall call = MakeCall(kAdalnMethods[2], size, DType::kBF16, 3);
  OpCall wide = call;
  for (const char* name : adaln::kGradientNames) {
    wide.inputs[name] =
        MakeOpTensor(DType::kF32, call.input(name).shape, OpValues(call.input(name)));
  }
  ExpectSameOp(RunOpCpu(wide), RunOpCpu(call), "wide");
  OpCall zeros = call;
  for (int c : {0, 2, 5}) {
    const char* name = adaln::kGradientNames[c];
    call.inputs.erase(name);
    zeros.inputs[name] = MakeOpTensor(DType::kBF16, {15, 6}, std::vector<float>(90, 0.0f));
  }
  ExpectSameOp(RunOpCpu(call), RunOpCpu(zeros), "zeros");
}

TEST_P(AdalnK128, ARowAloneEqualsTheRowInAnyBatch) {
  OpCall all = MakeCall(GetParam(), {130, 5, 136}, DType::kBF16, 3);
  const bool backward = all.method == kAdalnMethods[2];
  if (backward) all.wanted = {"grad_temb"};
  const OpOutputs whole = RunOpCpu(all);
  for (int64_t rows : {1, 2, 8, 9, 63, 64, 65, 129}) {
    for (int64_t first : {int64_t{0}, 130 - rows}) {
      for (const auto& [name, bytes] : RunOpCpu(AdalnRowsOf(all, first, rows))) {
        const std::vector<std::byte>& expected = whole.at(name);
        const auto row_bytes = static_cast<int64_t>(expected.size()) / 130;
        EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), expected.begin() + first * row_bytes))
            << name << " " << rows << " rows from " << first;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, AdalnK128, testing::ValuesIn(kAdalnMethods));

TEST(AdalnK128Accuracy, OutputsAreCorrectlyRounded) {
  const AdalnSize size = {8, 32, 2688};
  const OpCall call = MakeCall(kAdalnMethods[1], size, DType::kBF16, 21);
  const std::vector<double> gold = RunOpGolden(call).at("table");
  const std::vector<float> table = OpValues(DType::kBF16, RunOpCpu(call).at("table"));
  size_t wrong = 0;
  for (size_t i = 0; i < gold.size(); ++i) {
    wrong += table[i] != arith::Bf16ToFloat(RoundF64ToBf16(gold[i]));
  }
  EXPECT_LE(wrong, gold.size() * 4 / 10000) << gold.size();
}

TEST(AdalnK128Accuracy, GradientsAreCloseToFp64) {
  for (DType grad : {DType::kBF16, DType::kF32}) {
    const AdalnSize size = {17, 24, 136};
    const OpCall call = MakeCall(kAdalnMethods[2], size, grad, 21);
    const std::vector<float> got = OpValues(DType::kF32, RunOpCpu(call).at("grad_temb"));
    const std::vector<double> gold = RunOpGolden(call).at("grad_temb");
    double worst = 0, largest = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      worst = std::max(worst, std::fabs(got[i] - gold[i]));
      largest = std::max(largest, std::fabs(gold[i]));
    }
    EXPECT_LE(worst, 1e-6 * largest);
  }
}

TEST(AdalnK128Values, RefusesF32WeightsByName) {
  for (const char* method : kAdalnMethods) {
    const OpCall call = MakeAdalnCall(method, {2, 2, 8}, DType::kF32, DType::kF32, 1);
    BoundOp bound(call, &OnTheHost);
    SelectionQuery query;
    query.contract = adaln::kK128Contract;
    const absl::Status status = Select(OpRegistry(), OpMethod(call), query, bound.args()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    const ErrorDetail detail = GetErrorDetail(status).value_or(ErrorDetail{});
    EXPECT_EQ(detail.reason, Reason::kDtypeNotAllowed);
    EXPECT_EQ(detail.field, "weight");
  }
}

}  // namespace
}  // namespace rlk::test
