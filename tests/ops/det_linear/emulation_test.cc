// The cpu backend against the straight-line emulation, bit for bit, and the instruction sets
// against each other.
#include <cmath>

#include "gtest/gtest.h"
#include "tests/ops/det_linear/linear_call.h"
#include "tests/ops/det_linear/linear_emulation.h"

namespace rlk::test {
namespace {

class LinearEmulated : public testing::TestWithParam<const char*> {};

TEST_P(LinearEmulated, EqualsTheContract) {
  uint32_t seed = 1;
  for (int64_t outputs : kLinearOutputs) {
    for (int64_t inputs : kLinearInputs) {
      for (int64_t rows : LinearRows()) {
        const LinearSize size = {rows, outputs, inputs};
        const int64_t activation = seed % 2 == 0 ? kSilu : kNoActivation;
        const OpCall call = MakeLinearCall(GetParam(), size, activation, seed % 3 != 0, seed);
        seed += 10;
        const std::string name = LinearName(call, size);
        const OpOutputs expected = EmulateLinear(call, size);
        ExpectSameOp(RunOpCpu(call), expected, name);
        ExpectSameOp(RunLinearIsa(call, Isa::kBase), expected, name + " x86-64");
        if (BestIsa() >= Isa::kV4) {
          ExpectSameOp(RunLinearIsa(call, Isa::kV3), expected, name + " x86-64-v3");
        }
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(LinearEmulated, LongSumsAndManyRowsEqualTheContract) {
  const LinearSize sizes[] = {{2, 9, 5376}, {7, 200, 256}, {257, 5, 64}, {193, 131, 516}};
  for (const LinearSize& size : sizes) {
    for (int64_t activation : {kNoActivation, kSilu}) {
      const OpCall call = MakeLinearCall(GetParam(), size, activation, true, 77);
      ExpectSameOp(RunOpCpu(call), EmulateLinear(call, size), LinearName(call, size));
      if (HasFatalFailure()) return;
    }
  }
}

// Infinities, NaN, overflow, subnormals and zeros of both signs among numbers, and alone.
TEST_P(LinearEmulated, ExtremeValuesFollowTheOperations) {
  const float extremes[] = {0.0f,   -0.0f,  1e-30f,   -1e-40f,   1e19f, -1e19f, 3e38f,
                            1e-45f, -3e38f, INFINITY, -INFINITY, NAN,   1.0f,   -1e-45f};
  const LinearSize size = {28, 70, 140};
  for (int64_t activation : {kNoActivation, kSilu}) {
    for (int one_kind : {0, 1}) {
      OpCall call = MakeLinearCall(GetParam(), size, activation, true, 5);
      for (auto& [name, tensor] : call.inputs) {
        std::vector<float> values = OpValues(tensor);
        const auto width = static_cast<size_t>(tensor.shape[tensor.shape.rank() - 1]);
        for (size_t i = 0; i < values.size(); ++i) {
          const size_t row = i / width;
          const bool change = one_kind != 0 ? row % 2 == 0 : i % 11 == 3 && row % 3 != 0;
          if (change) values[i] = extremes[(row / 2 + (one_kind != 0 ? 0 : i)) % 14];
        }
        tensor = MakeOpTensor(DType::kF32, tensor.shape, values);
      }
      const OpOutputs expected = EmulateLinear(call, size);
      for (Isa isa : AvailableIsas()) {
        ExpectSameOp(RunLinearIsa(call, isa), expected, LinearName(call, size));
      }
    }
  }
}

// Sums of products that all underflow to -0 keep the sign that the operations give: with a bias of
// -0 it is seen.
TEST(LinearEmulation, UnderflowToNegativeZeroIsKept) {
  for (int64_t inputs : {4, 124, 128, 132}) {
    const LinearSize size = {1, 2, inputs};
    OpCall call = MakeLinearCall(kLinearMethods[0], size, kNoActivation, true, 5);
    const auto tiny = [&](const Dims& shape, float value) {
      return MakeOpTensor(DType::kF32, shape,
                          std::vector<float>(static_cast<size_t>(ElementCount(shape)), value));
    };
    call.inputs["x"] = tiny({1, inputs}, 1e-30f);
    call.inputs["weight"] = tiny({2, inputs}, -1e-30f);
    call.inputs["bias"] = tiny({2}, -0.0f);
    const OpOutputs outputs = RunOpCpu(call);
    ExpectSameOp(outputs, EmulateLinear(call, size), "K " + std::to_string(inputs));
    // 32 chunks fill every accumulator with -0; fewer leave some at +0.
    const float y = OpValues(DType::kF32, outputs.at("y"))[0];
    EXPECT_EQ(std::signbit(y), inputs >= 128) << inputs;
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, LinearEmulated, testing::ValuesIn(kLinearMethods));

}  // namespace
}  // namespace rlk::test
