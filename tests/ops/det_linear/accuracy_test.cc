// Against the FP64 reference by the tolerance contract's row for reductions, and the same judgement
// on planted faults, which it must find.
#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "tests/ops/det_linear/linear_call.h"

namespace rlk::test {
namespace {

// Class reduction, F32, of the tolerance contract ws1-c1-v2: forward and gradient.
constexpr double kTolerance = 1e-4;

bool Close(const std::vector<float>& got, const std::vector<double>& gold) {
  for (size_t i = 0; i < got.size(); ++i) {
    if (!(std::fabs(got[i] - gold[i]) <= kTolerance + kTolerance * std::fabs(gold[i]))) {
      return false;
    }
  }
  return true;
}

double Rms(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value * value;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

TEST(LinearAccuracy, MeetsTheToleranceContractAndFindsPlantedFaults) {
  for (const char* method : kLinearMethods) {
    for (const LinearSize& size : {LinearSize{33, 65, 1044}, LinearSize{129, 130, 132}}) {
      for (int64_t activation : {kNoActivation, kSilu}) {
        const OpCall call = MakeLinearCall(method, size, activation, true, 17);
        const OpOutputs outputs = RunOpCpu(call);
        for (const auto& [name, gold] : RunOpGolden(call)) {
          const std::string what = LinearName(call, size) + " " + name;
          ASSERT_GE(Rms(gold), 1.0) << what;
          const std::vector<float> got = OpValues(DType::kF32, outputs.at(name));
          EXPECT_TRUE(Close(got, gold)) << what;
          std::vector<float> wrong(got.size(), 0.0f);
          EXPECT_FALSE(Close(wrong, gold)) << what << " zero";
          for (size_t i = 0; i < got.size(); ++i) wrong[i] = got[i] * 1.05f;
          EXPECT_FALSE(Close(wrong, gold)) << what << " scaled";
          wrong = got;
          std::swap(wrong[1], wrong[got.size() - 2]);
          EXPECT_FALSE(Close(wrong, gold)) << what << " swapped";
        }
      }
    }
  }
}

// Without a bias, with one row's contribution left out, or with the activation's slope left out,
// the judgement fails too.
TEST(LinearAccuracy, SeesAMissingBiasRowOrSlope) {
  const LinearSize size = {33, 65, 132};
  const OpCall forward = MakeLinearCall(kLinearMethods[0], size, kSilu, true, 3);
  OpCall fault = forward;
  fault.inputs.erase("bias");
  EXPECT_FALSE(Close(OpValues(DType::kF32, RunOpCpu(fault).at("y")), RunOpGolden(forward)["y"]));
  const OpCall weight = MakeLinearCall(kLinearMethods[2], size, kSilu, true, 3);
  const std::vector<double> gold = RunOpGolden(weight)["grad_weight"];
  fault = LinearRowsOf(weight, 0, 32);
  EXPECT_FALSE(Close(OpValues(DType::kF32, RunOpCpu(fault).at("grad_weight")), gold));
  fault = weight;
  fault.integers["activation"] = kNoActivation;
  fault.inputs.erase("pre");
  EXPECT_FALSE(Close(OpValues(DType::kF32, RunOpCpu(fault).at("grad_weight")), gold));
}

// Long sums: |error| <= 2^-20 of the sum of magnitudes, whatever cancels.
TEST(LinearAccuracy, LongSumsAreBoundedByTheSumOfMagnitudes) {
  const LinearSize size = {4, 7, 5376};
  const OpCall call = MakeLinearCall(kLinearMethods[0], size, kNoActivation, false, 29);
  const std::vector<float> y = OpValues(DType::kF32, RunOpCpu(call).at("y"));
  const std::vector<double> gold = RunOpGolden(call)["y"];
  const std::vector<float> x = OpValues(call.input("x")), w = OpValues(call.input("weight"));
  for (size_t i = 0; i < y.size(); ++i) {
    double magnitudes = 0;
    for (size_t k = 0; k < 5376; ++k) {
      magnitudes += std::fabs(double{x[i / 7 * 5376 + k]} * w[i % 7 * 5376 + k]);
    }
    EXPECT_LE(std::fabs(y[i] - gold[i]), 0x1p-20 * magnitudes);
  }
}

}  // namespace
}  // namespace rlk::test
