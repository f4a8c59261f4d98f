// Accuracy against the FP64 reference by tolerance, and proof that each tolerance can fail.
#include <algorithm>
#include <cmath>
#include <functional>

#include "gtest/gtest.h"
#include "tests/ops/final_logit_softcap/softcap_call.h"
#include "tests/support/golden_json.h"

namespace rlk::test {
namespace {

struct Tolerance {
  double atol, rtol;
};

// The elementwise row of the tolerance contract.
Tolerance ElementwiseRow(const char* judgment, DType dtype) {
  static const nlohmann::json contract =
      ReadJson(RLK_SOURCE_DIR "/server/engine/tolerance_contract.json");
  const char* name = dtype == DType::kBF16  ? "bfloat16"
                     : dtype == DType::kF16 ? "float16"
                                            : "float32";
  const nlohmann::json& row = contract.at("judgments").at(judgment).at("elementwise").at(name);
  return {row.at("atol"), row.at("rtol")};
}

int64_t Violations(const std::vector<float>& got, const std::vector<double>& expected,
                   Tolerance tolerance) {
  int64_t count = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(got[i] - expected[i]);
    if (!(error <= tolerance.atol + tolerance.rtol * std::abs(expected[i]))) ++count;
  }
  return count;
}

struct Data {
  std::vector<std::byte> x, grad_y;
  SoftcapCall call;
};

Data MakeData(DType dtype, float cap, bool backward) {
  constexpr int64_t kCount = 3 * 4099;
  Data data;
  data.x = Encode(dtype, RandomValues(kCount, 4.0f * cap, 11));
  data.call.x = View(dtype, {3, 4099}, data.x.data());
  data.call.softcap = cap;
  if (backward) {
    data.grad_y = Encode(DType::kF32, RandomValues(kCount, 3.0f, 12));
    data.call.grad_y = View(DType::kF32, {3, 4099}, data.grad_y.data());
    data.call.output = dtype;
  }
  return data;
}

// The call with x up-converted, which gives the same value before the cast.
SoftcapCall UpConverted(const Data& data, std::vector<std::byte>& x32) {
  x32 = Encode(DType::kF32, DecodeAll(data.call.x.dtype, data.x));
  SoftcapCall call = data.call;
  call.x = View(DType::kF32, data.call.x.shape, x32.data());
  call.output = DType::kF32;
  return call;
}

TEST(SoftcapAccuracy, ForwardIsWithinTheFp32RowForEveryDtype) {
  for (DType dtype : kSoftcapDTypes) {
    for (float cap : {20.0f, 30.0f, 7.3f}) {
      const Data data = MakeData(dtype, cap, false);
      const std::vector<float> y = DecodeAll(DType::kF32, data.call.RunCpu());
      const std::vector<double> golden = data.call.RunGolden();
      const Tolerance row = ElementwiseRow("forward_accuracy", DType::kF32);
      EXPECT_EQ(Violations(y, golden, row), 0) << DTypeName(dtype) << " " << cap;

      // Planted faults must fail.
      std::vector<float> zero(y.size(), 0.0f), scaled = y, cast_moved = y;
      for (float& value : scaled) value *= 1.05f;
      // One cast moved: the result rounded to BF16 on its way to FP32.
      for (float& value : cast_moved) value = arith::Bf16ToFloat(arith::FloatToBf16(value));
      const auto most = static_cast<int64_t>(y.size()) * 9 / 10;
      EXPECT_GT(Violations(zero, golden, row), most);
      EXPECT_GT(Violations(scaled, golden, row), most);
      EXPECT_GT(Violations(cast_moved, golden, row), most / 2);
    }
  }
}

TEST(SoftcapAccuracy, ForwardInTheDtypeOfXIsOneRoundingOfTheFp32Result) {
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    Data data = MakeData(dtype, 30.0f, false);
    const std::vector<std::byte> wide = data.call.RunCpu();
    data.call.output = dtype;
    EXPECT_EQ(data.call.RunCpu(), Encode(dtype, DecodeAll(DType::kF32, wide)));
  }
}

TEST(SoftcapAccuracy, GradientIsWithinTheRowOfItsDtype) {
  for (DType dtype : kSoftcapDTypes) {
    for (float cap : {20.0f, 30.0f, 7.3f}) {
      const Data data = MakeData(dtype, cap, true);
      const std::vector<float> grad_x = DecodeAll(dtype, data.call.RunCpu());
      const std::vector<double> golden = data.call.RunGolden();
      const Tolerance row = ElementwiseRow("gradient_accuracy", dtype);
      EXPECT_EQ(Violations(grad_x, golden, row), 0) << DTypeName(dtype) << " " << cap;
      std::vector<float> zero(grad_x.size(), 0.0f), scaled = grad_x;
      for (float& value : scaled) value *= 1.05f;
      // A vanishing gradient hides behind an absolute tolerance, so a part must fail, not all.
      EXPECT_GT(Violations(zero, golden, row), static_cast<int64_t>(grad_x.size()) / 4);
      EXPECT_GT(Violations(scaled, golden, row), static_cast<int64_t>(grad_x.size()) / 10);
    }
  }
}

// The row of a 16-bit dtype cannot see faults where the gradient is small; this can.
int64_t SharpViolations(const std::vector<float>& got, const std::vector<double>& expected,
                        const std::vector<float>& grad_y) {
  int64_t count = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double atol = 1e-6 * std::max(1.0, std::abs(static_cast<double>(grad_y[i])));
    if (!(std::abs(got[i] - expected[i]) <= atol)) ++count;
  }
  return count;
}

TEST(SoftcapAccuracy, GradientBeforeItsCastIsSharp) {
  for (DType dtype : kSoftcapDTypes) {
    for (float cap : {20.0f, 30.0f, 7.3f}) {
      const Data data = MakeData(dtype, cap, true);
      std::vector<std::byte> x32;
      const SoftcapCall call = UpConverted(data, x32);
      const std::vector<float> grad_y = DecodeAll(DType::kF32, data.grad_y);
      const std::vector<float> grad_x = DecodeAll(DType::kF32, call.RunCpu());
      const std::vector<double> golden = call.RunGolden();
      EXPECT_EQ(SharpViolations(grad_x, golden, grad_y), 0) << DTypeName(dtype) << " " << cap;
      std::vector<float> zero(grad_x.size(), 0.0f), scaled = grad_x, cast_moved = grad_x;
      for (float& value : scaled) value *= 1.05f;
      // One cast moved: t rounded to BF16 before m = 1 - t^2.
      const std::vector<float> x = DecodeAll(DType::kF32, x32);
      for (size_t i = 0; i < x.size(); ++i) {
        const float t = arith::Bf16ToFloat(arith::FloatToBf16(std::tanh(x[i] / cap)));
        cast_moved[i] = grad_y[i] * (1.0f - t * t);
      }
      const auto half = static_cast<int64_t>(grad_x.size()) / 2;
      EXPECT_GT(SharpViolations(zero, golden, grad_y), half);
      EXPECT_GT(SharpViolations(scaled, golden, grad_y), half);
      EXPECT_GT(SharpViolations(cast_moved, golden, grad_y), half);
      // The result itself is the FP32 one with one cast.
      EXPECT_EQ(data.call.RunCpu(), Encode(dtype, grad_x));
    }
  }
}

TEST(SoftcapAccuracy, GoldenAsABackendRoundsTheReferenceOnce) {
  const std::vector<MethodDecl> decls = DeclareFinalLogitSoftcap();
  for (const MethodDecl& decl : decls) {
    const auto golden =
        std::find_if(decl.variants.begin(), decl.variants.end(),
                     [](const Variant& variant) { return variant.backend == Backend::kGolden; });
    ASSERT_NE(golden, decl.variants.end());
    EXPECT_EQ(golden->contracts[0].contract, kSoftcapGoldenContract);
    const bool backward = decl.method == "final_logit_softcap.backward";
    Data data = MakeData(DType::kF32, 30.0f, backward);
    const std::vector<double> exact = data.call.RunGolden();
    const std::vector<float> rounded = DecodeAll(DType::kF32, data.call.Run(golden->launch));
    for (size_t i = 0; i < exact.size(); ++i) {
      ASSERT_EQ(rounded[i], static_cast<float>(exact[i]));
    }
  }
}

}  // namespace
}  // namespace rlk::test
