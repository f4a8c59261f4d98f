// The errors of bf16-k128-v1 against FP64: within the bounds that its page states, which sums
// without its promotion to FP32 exceed.
#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/registry/golden_variant.h"
#include "tests/ops/det_linear/k128_emulation.h"
#include "tests/ops/det_linear/linear_call.h"

namespace rlk::test {
namespace {

OpCall MakeCall(const char* method, LinearSize size, DType wide, const char* output) {
  OpCall call =
      MakeBf16LinearCall(kK128LinearContract, method, size, kNoActivation, wide, false, 17);
  call.wanted = {output};
  return call;
}

// The largest error over the largest value.
double Error(const std::vector<float>& got, const std::vector<double>& gold) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    worst = std::max(worst, std::fabs(got[i] - gold[i]));
    largest = std::max(largest, std::fabs(gold[i]));
  }
  return worst / largest;
}

double ErrorOf(const OpCall& call) {
  const std::string& output = call.wanted.front();
  return Error(OpValues(DType::kF32, RunOpCpu(call).at(output)), RunOpGolden(call).at(output));
}

TEST(K128Accuracy, ErrorsAreWithinTheStatedBounds) {
  const struct {
    const char *method, *output;
    LinearSize size;
    double bound;
  } cases[] = {{kLinearMethods[0], "y", {16, 256, 2688}, 4e-7},
               {kLinearMethods[1], "grad_x", {4, 96768, 8}, 2e-6},
               {kLinearMethods[2], "dweight_acc", {2048, 16, 64}, 4e-7}};
  for (const auto& c : cases) {
    for (DType wide : {DType::kF32, DType::kBF16}) {
      if (wide == DType::kBF16 && c.method != kLinearMethods[2]) continue;
      EXPECT_LE(ErrorOf(MakeCall(c.method, c.size, wide, c.output)), c.bound) << c.method;
    }
  }
}

// The same sums in one accumulator of the tensor core, and with a part of the gradient left out,
// are worse than the bound.
TEST(K128Accuracy, TheBoundsSeeALongChainAndAMissingPart) {
  const LinearSize size = {4, 64, 2688};
  const OpCall forward = MakeCall(kLinearMethods[0], size, DType::kF32, "y");
  const std::vector<uint16_t> x = Bits(forward.input("x")), w = Bits(forward.input("weight"));
  std::vector<float> chain(4 * 64);
  for (size_t i = 0; i < chain.size(); ++i) {
    uint32_t c = 0;
    for (size_t k = 0; k < 2688; k += 16) {
      c = arith::TensorStep(&x[i / 64 * 2688 + k], &w[i % 64 * 2688 + k], c);
    }
    chain[i] = arith::BitsFloat(c);
  }
  EXPECT_GT(Error(chain, RunOpGolden(forward).at("y")), 1e-6);

  OpCall weight = MakeCall(kLinearMethods[2], {256, 16, 64}, DType::kF32, "dweight_acc");
  const std::vector<double> gold = RunOpGolden(weight).at("dweight_acc");
  std::vector<float> cut = OpValues(weight.input("grad_y"));
  for (float& g : cut) {
    const float first = arith::Bf16ToFloat(arith::FloatToBf16(g));
    g = first + arith::Bf16ToFloat(arith::FloatToBf16(g - first));
  }
  weight.inputs["grad_y"] = MakeOpTensor(DType::kF32, {256, 16}, cut);
  EXPECT_GT(Error(OpValues(DType::kF32, RunOpCpu(weight).at("dweight_acc")), gold), 4e-7);
}

TEST(K128Accuracy, OutputsAreCorrectlyRounded) {
  OpCall call = MakeBf16LinearCall(kK128LinearContract, kLinearMethods[0], {16, 512, 2688},
                                   kNoActivation, DType::kBF16, true, 21);
  call.wanted = {"y"};
  OpTensor y = {DType::kBF16, {16, 512}, RunOpCpu(call).at("y")};
  const std::vector<uint16_t> got = Bits(y);
  const std::vector<double> gold = RunOpGolden(call).at("y");
  size_t wrong = 0;
  for (size_t i = 0; i < got.size(); ++i) wrong += got[i] != RoundF64ToBf16(gold[i]);
  EXPECT_LE(wrong, got.size() * 4 / 10000) << got.size();
}

}  // namespace
}  // namespace rlk::test
