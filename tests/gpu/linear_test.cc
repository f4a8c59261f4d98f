// The cuda backend of det_linear and timestep_mlp_fp32 against the cpu backend, bit for bit, and
// the stored digests.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "tests/gpu/op_cuda.h"
#include "tests/ops/det_linear/linear_digest.h"
#include "tests/ops/timestep_mlp_fp32/mlp_call.h"
#include "tests/support/golden_json.h"

namespace rlk::gpu_test {
namespace {

using test::ExpectSameOp;
using test::kNoActivation;
using test::kSilu;
using test::kSiluCuda;
using test::LinearSize;
using test::MakeLinearCall;
using test::OpCall;
using test::OpOutputs;
using test::OpTensor;

class Linear : public testing::TestWithParam<const char*> {};

TEST_P(Linear, CudaEqualsCpu) {
  uint32_t seed = 1;
  for (int64_t outputs : test::kLinearOutputs) {
    for (int64_t inputs : test::kLinearInputs) {
      for (int64_t rows : test::LinearRows()) {
        const LinearSize size = {rows, outputs, inputs};
        const int64_t activation = seed % 2 == 0 ? kSilu : kNoActivation;
        const OpCall call = MakeLinearCall(GetParam(), size, activation, seed % 3 != 0, seed);
        seed += 10;
        ExpectCudaEqualsCpu(call, LinearName(call, size));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Long rows, deep pipelines, many tiles, and the layers of the timestep MLP.
TEST_P(Linear, LargeShapesEqualCpu) {
  const LinearSize sizes[] = {{1, 5376, 256},  {8, 2688, 5376},  {3, 130, 5380},  {5, 1000, 1028},
                              {200, 700, 516}, {2048, 96, 260},  {65, 2688, 132}, {4, 66, 4096},
                              {2, 129, 2052},  {7, 4096, 1024},  {129, 65, 2304}, {6, 260, 7044},
                              {8, 31, 8192},   {700, 130, 2304}, {9, 1048577, 4}};
  for (const LinearSize& size : sizes) {
    const OpCall call = MakeLinearCall(GetParam(), size, kSilu, true, 9);
    ExpectCudaEqualsCpu(call, LinearName(call, size));
    if (HasFatalFailure()) return;
  }
}

// NaN, infinities, subnormals, zeros of both signs and overflow, among numbers and as random bits.
TEST_P(Linear, ExtremeValuesEqualCpu) {
  const float extremes[] = {0.0f,   -0.0f,  1e-30f,   -1e-40f,   1e19f, -1e19f, 3e38f,
                            1e-45f, -3e38f, INFINITY, -INFINITY, NAN,   1.0f,   -1e-45f};
  for (const LinearSize& size : {LinearSize{8, 70, 140}, LinearSize{66, 130, 132}}) {
    for (int64_t activation : {kNoActivation, kSilu}) {
      for (uint32_t every : {1u, 13u, 97u}) {
        OpCall call = MakeLinearCall(GetParam(), size, activation, true, 5);
        uint32_t state = every;
        for (auto& [name, tensor] : call.inputs) {
          std::vector<float> values = OpValues(tensor);
          for (float& value : values) {
            state = state * 1664525u + 1013904223u;
            if ((state >> 8) % every != 0) continue;
            const uint32_t pick = (state >> 20) % 15;
            value = pick < 14 ? extremes[pick] : arith::BitsFloat(state * 2654435761u);
          }
          tensor = test::MakeOpTensor(DType::kF32, tensor.shape, values);
        }
        ExpectCudaEqualsCpu(call, LinearName(call, size) + " every " + std::to_string(every));
      }
    }
  }
}

TEST_P(Linear, RepeatedCallsAndSingleOutputsGiveTheSameBits) {
  const LinearSize size = {8, 2688, 1044};
  const OpCall call = MakeLinearCall(GetParam(), size, kSilu, true, 3);
  const OpOutputs first = RunOpCuda(call);
  for (int i = 0; i < 30; ++i) ExpectSameOp(RunOpCuda(call), first, LinearName(call, size));
  for (const auto& [name, bytes] : first) {
    OpCall one = call;
    one.wanted = {name};
    ExpectSameOp(RunOpCuda(one), {{name, bytes}}, name);
  }
}

// Rows beside others, and beside NaN, on the device.
TEST_P(Linear, ARowAloneEqualsTheRowInABatch) {
  if (std::string(GetParam()) == test::kLinearMethods[2]) return;  // folds over rows
  const OpCall all = MakeLinearCall(GetParam(), {257, 130, 1044}, kSilu, true, 3);
  const OpOutputs whole = RunOpCuda(all);
  for (int64_t rows : {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 32, 33, 64, 65, 256}) {
    const int64_t first = 257 - rows;
    for (const auto& [name, bytes] : RunOpCuda(LinearRowsOf(all, first, rows))) {
      const auto row = static_cast<int64_t>(bytes.size()) / rows;
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), whole.at(name).begin() + first * row))
          << GetParam() << " " << name << " of " << rows << " rows";
    }
  }
}

// silu_cuda: the sums are those of the contract, and the function is a SiLU.
TEST_P(Linear, SiluCudaKeepsTheSumsAndIsASilu) {
  for (const LinearSize& size : {LinearSize{5, 65, 132}, LinearSize{40, 65, 132}}) {
    const OpCall portable = MakeLinearCall(GetParam(), size, kSilu, true, 3);
    OpCall provider = portable;
    provider.integers["activation"] = kSiluCuda;
    const OpOutputs expected = RunOpCuda(portable), got = RunOpCuda(provider);
    for (const auto& [name, bytes] : expected) {
      if (name == "pre") {
        EXPECT_EQ(got.at(name), bytes);
        continue;
      }
      const std::vector<float> a = test::OpValues(DType::kF32, got.at(name));
      const std::vector<float> b = test::OpValues(DType::kF32, bytes);
      for (size_t i = 0; i < a.size(); ++i) {
        ASSERT_NEAR(a[i], b[i], 1e-4 + 1e-4 * std::fabs(b[i])) << name << " " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, Linear, testing::ValuesIn(test::kLinearMethods));

TEST(LinearFold, IsCarriedAtAnyRowOnTheDevice) {
  const OpCall call = MakeLinearCall(test::kLinearMethods[2], {150, 130, 260}, kSilu, true, 2);
  const OpOutputs whole = RunOpCuda(call);
  for (int64_t cut : {1, 15, 16, 17, 64, 149}) {
    const OpOutputs first = RunOpCuda(LinearRowsOf(call, 0, cut));
    OpCall rest = LinearRowsOf(call, cut, 150 - cut);
    rest.inputs["dweight_acc_in"] = {DType::kF32, {130, 260}, first.at("dweight_acc")};
    rest.inputs["dbias_acc_in"] = {DType::kF32, {130}, first.at("dbias_acc")};
    ExpectSameOp(RunOpCuda(rest), whole, "cut at " + std::to_string(cut));
  }
}

TEST(LinearStoredDigests, AreThoseOfTheDevice) {
  const nlohmann::json golden = test::LoadGolden("digests_det_linear.json");
  for (const test::LinearDigestCase& c : test::LinearDigestCases(golden)) {
    EXPECT_EQ(OpDigests(c.call, RunOpCuda(c.call)), c.digests) << c.name;
  }
}

TEST(Mlp, CudaEqualsCpu) {
  uint32_t seed = 1;
  for (const test::MlpSize& size : test::kMlpSizes) {
    for (bool backward : {false, true}) {
      const OpCall call = test::MakeMlpCall(backward, size, seed += 10);
      ExpectCudaEqualsCpu(call, MlpName(call, size));
    }
  }
}

// The model's own shape, every row count of the fast kernels, saved pre included.
TEST(Mlp, TheModelsShapeEqualsCpu) {
  for (int64_t rows : {1, 2, 3, 4, 5, 8, 9, 33}) {
    const test::MlpSize size = {rows, 256, 5376, 2688};
    const OpCall forward = test::MakeMlpCall(false, size, 3);
    ExpectCudaEqualsCpu(forward, MlpName(forward, size));
    OpCall backward = test::MakeMlpCall(true, size, 3);
    ExpectCudaEqualsCpu(backward, MlpName(backward, size));
    const OpOutputs recomputed = RunOpCuda(backward);
    backward.inputs["pre"] = {DType::kF32, {rows, 5376}, RunOpCuda(forward).at("pre")};
    ExpectSameOp(RunOpCuda(backward), recomputed, MlpName(backward, size) + " with pre");
    if (testing::Test::HasFatalFailure()) return;
  }
}

// The second layer begins before the first has ended: the result must not depend on when.
TEST(Mlp, ManyCallsInARowGiveTheSameBits) {
  const test::MlpSize size = {8, 256, 5376, 2688};
  const OpCall call = test::MakeMlpCall(false, size, 3);
  const OpOutputs first = RunOpCuda(call);
  for (int i = 0; i < 100; ++i) ExpectSameOp(RunOpCuda(call), first, "call " + std::to_string(i));
}

TEST(Mlp, WantedOutputsDoNotMatter) {
  for (bool backward : {false, true}) {
    const OpCall call = test::MakeMlpCall(backward, {9, 132, 260, 130}, 3);
    for (const auto& [name, bytes] : RunOpCuda(call)) {
      OpCall one = call;
      one.wanted = {name};
      ExpectSameOp(RunOpCuda(one), {{name, bytes}}, name);
    }
  }
}

TEST(MlpStoredDigests, AreThoseOfTheDevice) {
  const nlohmann::json golden = test::LoadGolden("digests_timestep_mlp_fp32.json");
  for (const test::MlpDigestCase& c : test::MlpDigestCases(golden)) {
    EXPECT_EQ(OpDigests(c.call, RunOpCuda(c.call)), c.digests) << MlpName(c.call, c.size);
  }
}

}  // namespace
}  // namespace rlk::gpu_test
