// Against the FP64 reference by the tolerance contract's row for reductions, and the same judgement
// on planted faults, which it must find. Conventions are tested bit by bit in emulation_test.cc: a
// tolerance cannot see them.
#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "tests/ops/rms_norm/norm_call.h"

namespace rlk::test {
namespace {

struct Tolerance {
  double atol, rtol;
};

// Class reduction of the tolerance contract ws1-c1-v2.
Tolerance ToleranceOf(DType dtype, bool gradient) {
  if (dtype == DType::kF32) return {1e-4, 1e-4};
  if (dtype == DType::kF16) return {1e-3, 1e-3};
  return {gradient ? 1e-1 : 5e-2, 2e-2};
}

bool Close(const std::vector<float>& got, const std::vector<double>& gold, Tolerance tolerance) {
  for (size_t i = 0; i < got.size(); ++i) {
    if (!(std::fabs(got[i] - gold[i]) <= tolerance.atol + tolerance.rtol * std::fabs(gold[i]))) {
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

DType DTypeOf(const NormCall& call, const std::string& output) {
  if (output == "grad_weight") return call.weight.dtype;
  return output == "rstd" || output == "dweight_acc" ? DType::kF32 : call.x.dtype;
}

// Gradients grow with grad_y and y with the weight, until the reference's RMS is at least 1.
NormCall Scaled(const NormKind& kind, bool backward, DType x, int64_t rows, int64_t length) {
  NormCall call = MakeNormCall(kind, backward, x, x, x, rows, length, 17);
  const float scale = x == DType::kF16 ? 4.0f : 8.0f;
  NormTensor& scaled = backward ? call.grad_y : call.weight;
  std::vector<float> values = NormValues(scaled);
  for (float& value : values) value *= scale;
  scaled = MakeNormTensor(x, scaled.shape, values);
  return call;
}

TEST(NormAccuracy, MeetsTheToleranceContractAndFindsPlantedFaults) {
  for (const NormKind& kind : kNormKinds) {
    // F16's row allows 1e-3, less than the second cast of hf-v1 can be off by: half of 2^-10,
    // twice.
    for (DType x : {DType::kF32, DType::kBF16, DType::kF16}) {
      if (x == DType::kF16 && kind.hf()) continue;
      for (bool backward : {false, true}) {
        const NormCall call = Scaled(kind, backward, x, 33, 515);
        const NormOutputs outputs = RunNormCpu(call);
        for (const auto& [name, gold] : RunNormGolden(call)) {
          if (name == "rstd") continue;
          const std::string what = NormName(call) + " " + name;
          ASSERT_GE(Rms(gold), 1.0) << what;
          const DType dtype = DTypeOf(call, name);
          std::vector<float> got = Floats(dtype, outputs.at(name));
          const Tolerance tolerance = ToleranceOf(dtype, backward);
          EXPECT_TRUE(Close(got, gold, tolerance)) << what;
          std::vector<float> wrong(got.size(), 0.0f);
          EXPECT_FALSE(Close(wrong, gold, tolerance)) << what << " zero";
          for (size_t i = 0; i < got.size(); ++i) wrong[i] = got[i] * 1.05f;
          EXPECT_FALSE(Close(wrong, gold, tolerance)) << what << " scaled";
          wrong = got;
          std::swap(wrong[1], wrong[got.size() - 2]);
          EXPECT_FALSE(Close(wrong, gold, tolerance)) << what << " swapped";
        }
      }
    }
  }
}

TEST(NormAccuracy, TheStatisticIsWithinTwoUnitsInTheLastPlace) {
  for (int64_t length : kNormLengths) {
    const NormCall call =
        MakeNormCall("rms_norm", false, DType::kF32, DType::kF32, DType::kF32, 2, length, 23);
    const std::vector<float> rstd = Floats(DType::kF32, RunNormCpu(call).at("rstd"));
    const std::vector<double> gold = RunNormGolden(call).at("rstd");
    for (size_t i = 0; i < rstd.size(); ++i) {
      EXPECT_NEAR(rstd[i], gold[i], 0x1p-22 * gold[i]) << length;
    }
  }
}

// |error| <= 8 * 2^-24 * sum |c| of each column, for folds over many rows.
TEST(NormAccuracy, TheFoldOverManyRowsIsBoundedByTheSumOfMagnitudes) {
  for (const char* contract : {"leftfold-v1", "chunk128-v1"}) {
    const int64_t rows = 8192, length = 64;
    NormCall call =
        MakeNormCall("rms_norm", true, DType::kF32, DType::kF32, DType::kF32, rows, length, 29);
    call.contract = contract;
    call.wanted = {"dweight_acc"};
    const std::vector<float> got = Floats(DType::kF32, RunNormCpu(call).at("dweight_acc"));
    const std::vector<double> gold = RunNormGolden(call).at("dweight_acc");
    NormCall forward = call;
    forward.backward = false;
    forward.wanted = {"rstd"};
    const std::vector<float> rstd = Floats(DType::kF32, RunNormCpu(forward).at("rstd"));
    const std::vector<float> x = NormValues(call.x), dy = NormValues(call.grad_y);
    int faults_found = 0;
    for (int64_t h = 0; h < length; ++h) {
      double magnitudes = 0;
      for (int64_t t = 0; t < rows; ++t) {
        const auto i = static_cast<size_t>(t * length + h);
        magnitudes += std::fabs(double{dy[i]} * x[i] * rstd[static_cast<size_t>(t)]);
      }
      const double bound = 8 * 0x1p-24 * magnitudes;
      EXPECT_LE(std::fabs(got[static_cast<size_t>(h)] - gold[static_cast<size_t>(h)]), bound);
      // Row 0 left out.
      const double fault = double{dy[static_cast<size_t>(h)]} * x[static_cast<size_t>(h)] * rstd[0];
      faults_found += std::fabs(fault) > bound ? 1 : 0;
    }
    EXPECT_GT(faults_found, length * 9 / 10);
  }
}

}  // namespace
}  // namespace rlk::test
