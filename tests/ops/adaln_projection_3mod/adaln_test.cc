// adaln_projection_3mod/portable-v1 on the cpu backend: against the emulation, bit for bit; layout,
// rows, accuracy with planted faults, refusals.
#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "tests/ops/adaln_projection_3mod/adaln_call.h"

namespace rlk::test {
namespace {

class Adaln : public testing::TestWithParam<const char*> {};

TEST_P(Adaln, EqualsTheContract) {
  uint32_t seed = 1;
  for (int64_t width : {1, 2, 5, 33}) {
    for (int64_t inputs : {8, 24, 136}) {
      for (int64_t rows : {1, 2, 7, 8, 9, 65}) {
        const AdalnSize size = {rows, width, inputs};
        const DType weight = seed % 2 == 0 ? DType::kF32 : DType::kBF16;
        const DType grad = seed % 4 < 2 ? DType::kF32 : weight;
        const OpCall call = MakeAdalnCall(GetParam(), size, weight, grad, seed);
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

TEST_P(Adaln, ThreadsAndSingleOutputsDoNotMatter) {
  ThreadPool pool(3);
  for (DType weight : {DType::kF32, DType::kBF16}) {
    const AdalnSize size = {67, 19, 72};
    OpCall call = MakeAdalnCall(GetParam(), size, weight, weight, 9);
    const OpOutputs expected = RunOpCpu(call);
    ExpectSameOp(RunOpCpu(call, &pool), expected, AdalnName(call, size));
    for (const auto& [name, bytes] : expected) {
      call.wanted = {name};
      ExpectSameOp(RunOpCpu(call, &pool), {{name, bytes}}, name);
    }
  }
}

TEST_P(Adaln, ExtremeValuesFollowTheOperations) {
  const float extremes[] = {0.0f,   -0.0f,  1e-30f,   -1e-40f,   1e19f, -1e19f, 3e38f,
                            -89.0f, -3e38f, INFINITY, -INFINITY, NAN,   88.9f,  -104.0f};
  for (DType weight : {DType::kF32, DType::kBF16}) {
    const AdalnSize size = {9, 4, 40};
    OpCall call = MakeAdalnCall(GetParam(), size, weight, DType::kF32, 5);
    for (auto& [name, tensor] : call.inputs) {
      std::vector<float> values = OpValues(tensor);
      for (size_t i = 0; i < values.size(); ++i) {
        if (i % 23 == 3) values[i] = extremes[i / 23 % 14];
      }
      tensor = MakeOpTensor(tensor.dtype, tensor.shape, values);
    }
    ExpectSameOp(RunOpCpu(call), EmulateAdaln(call, size), AdalnName(call, size));
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, Adaln, testing::ValuesIn(kAdalnMethods));

// Every channel carries its own number: chunk c of modality m at (3t + m, h), and nothing else.
TEST(AdalnLayout, ChannelsGoToTheirChunkModalityAndRow) {
  for (DType weight : {DType::kF32, DType::kBF16}) {
    const AdalnSize size = {3, 7, 8};  // 126 channels: exact in BF16
    OpCall call = MakeAdalnCall(kAdalnMethods[0], size, weight, weight, 1);
    call.inputs["weight"] = MakeOpTensor(weight, {126, 8}, std::vector<float>(126 * 8, 0.0f));
    std::vector<float> tags(126);
    for (size_t n = 0; n < tags.size(); ++n) tags[n] = static_cast<float>(n + 1);
    call.inputs["bias"] = MakeOpTensor(weight, {126}, tags);
    const OpOutputs outputs = RunOpCpu(call);
    const char* order[] = {"shift_msa", "scale_msa", "gate_msa",
                           "shift_mlp", "scale_mlp", "gate_mlp"};
    for (int c = 0; c < 6; ++c) {
      const std::vector<float> view = OpValues(weight, outputs.at(order[c]));
      ASSERT_EQ(view.size(), 9u * 7u);
      for (int t = 0; t < 3; ++t) {
        for (int m = 0; m < 3; ++m) {
          for (int h = 0; h < 7; ++h) {
            EXPECT_EQ(view[static_cast<size_t>((3 * t + m) * 7 + h)],
                      static_cast<float>(m * 42 + c * 7 + h + 1))
                << order[c] << " t" << t << " m" << m << " h" << h;
          }
        }
      }
    }
  }
}

// One gradient of one element moves grad_bias and grad_weight of its own channel alone.
TEST(AdalnLayout, GradientsComeFromTheirChunkModalityAndRow) {
  const AdalnSize size = {2, 3, 8};
  const OpCall zero = [&] {
    OpCall call = MakeAdalnCall(kAdalnMethods[2], size, DType::kF32, DType::kF32, 1);
    for (const char* name : adaln::kGradientNames) {
      call.inputs[name] = MakeOpTensor(DType::kF32, {6, 3}, std::vector<float>(18, 0.0f));
    }
    return call;
  }();
  for (size_t c = 0; c < 6; ++c) {
    for (size_t m = 0; m < 3; ++m) {
      OpCall call = zero;
      std::vector<float> grad(18, 0.0f);
      grad[(3 + m) * 3 + 2] = 5.0f;  // row t = 1, h = 2
      call.inputs[adaln::kGradientNames[c]] = MakeOpTensor(DType::kF32, {6, 3}, grad);
      const std::vector<float> bias = OpValues(DType::kF32, RunOpCpu(call).at("grad_bias"));
      for (size_t n = 0; n < bias.size(); ++n) {
        EXPECT_EQ(bias[n], n == m * 18 + c * 3 + 2 ? 5.0f : 0.0f) << c << " " << m << " " << n;
      }
    }
  }
}

TEST(AdalnLayout, AbsentGradientsAreZeros) {
  for (DType weight : {DType::kF32, DType::kBF16}) {
    const AdalnSize size = {5, 6, 24};
    OpCall call = MakeAdalnCall(kAdalnMethods[2], size, weight, weight, 3);
    OpCall zeros = call;
    for (int c : {0, 2, 5}) {
      const char* name = adaln::kGradientNames[c];
      call.inputs.erase(name);
      zeros.inputs[name] = MakeOpTensor(weight, {15, 6}, std::vector<float>(90, 0.0f));
    }
    ExpectSameOp(RunOpCpu(call), RunOpCpu(zeros), "zeros");
  }
}

TEST(AdalnRows, ARowAloneEqualsTheRowInAnyBatch) {
  for (DType weight : {DType::kF32, DType::kBF16}) {
    const OpCall all = MakeAdalnCall(kAdalnMethods[1], {257, 5, 72}, weight, weight, 3);
    const std::vector<std::byte> whole = RunOpCpu(all).at("table");
    const auto row_bytes = static_cast<int64_t>(whole.size()) / 257;
    for (int64_t rows = 1; rows <= 130; ++rows) {
      for (int64_t first : {int64_t{0}, 257 - rows}) {
        const std::vector<std::byte> part = RunOpCpu(AdalnRowsOf(all, first, rows)).at("table");
        EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first * row_bytes))
            << rows << " rows from " << first;
      }
    }
  }
}

// The views and the table are the same numbers.
TEST(AdalnRows, TableAndViewsAgree) {
  const AdalnSize size = {4, 9, 40};
  OpCall call = MakeAdalnCall(kAdalnMethods[0], size, DType::kBF16, DType::kBF16, 3);
  const OpOutputs views = RunOpCpu(call);
  call.method = kAdalnMethods[1];
  const std::vector<float> table = OpValues(DType::kBF16, RunOpCpu(call).at("table"));
  for (size_t i = 0; i < table.size(); ++i) {
    const size_t t = i / 162, n = i % 162;
    const auto view = OpValues(DType::kBF16, views.at(adaln::kChunkNames[AdalnChunk(n, 9)]));
    ASSERT_EQ(view[AdalnElement(t, n, 9)], table[i]) << i;
  }
}

double EqualShare(const std::vector<float>& got, const std::vector<double>& gold) {
  size_t equal = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    equal += arith::FloatToBf16(got[i]) == RoundF64ToBf16(gold[i]);
  }
  return static_cast<double>(equal) / static_cast<double>(got.size());
}

// At least 0.9995 of the outputs are correctly rounded, and the judgement finds a cast of temb
// before the SiLU, a missing bias and a scaled output.
TEST(AdalnAccuracy, OutputsAreCorrectlyRoundedAndFaultsAreFound) {
  const AdalnSize size = {8, 32, 2688};
  const OpCall call = MakeAdalnCall(kAdalnMethods[1], size, DType::kBF16, DType::kBF16, 21);
  const std::vector<double> gold = RunOpGolden(call).at("table");
  const auto table = [](const OpCall& c) {
    return OpValues(DType::kBF16, RunOpCpu(c).at("table"));
  };
  EXPECT_GE(EqualShare(table(call), gold), 0.9995);
  OpCall early = call;
  std::vector<float> temb = OpValues(call.input("temb"));
  for (float& value : temb) value = arith::Bf16ToFloat(arith::FloatToBf16(value));
  early.inputs["temb"] = MakeOpTensor(DType::kF32, call.input("temb").shape, temb);
  EXPECT_LT(EqualShare(table(early), gold), 0.75);
  OpCall unbiased = call;
  unbiased.inputs["bias"] =
      MakeOpTensor(DType::kBF16, {18 * 32}, std::vector<float>(18 * 32, 0.0f));
  EXPECT_LT(EqualShare(table(unbiased), gold), 0.5);
  std::vector<float> scaled = table(call);
  for (float& value : scaled) value *= 1.05f;
  EXPECT_LT(EqualShare(scaled, gold), 0.2);
}

TEST(AdalnAccuracy, GradientsAreCloseToFp64) {
  for (int64_t rows : {3, 17, 64}) {
    const AdalnSize size = {rows, 24, 136};
    const OpCall call = MakeAdalnCall(kAdalnMethods[2], size, DType::kBF16, DType::kF32, 21);
    const OpOutputs outputs = RunOpCpu(call);
    auto gold = RunOpGolden(call);
    for (const char* name : {"grad_weight", "grad_bias"}) {
      EXPECT_GE(EqualShare(OpValues(DType::kBF16, outputs.at(name)), gold.at(name)),
                1 - 1e-4 - 2e-6 * static_cast<double>(rows))
          << name << " " << rows;
    }
    const std::vector<float> grad_temb = OpValues(DType::kF32, outputs.at("grad_temb"));
    double worst = 0, largest = 0;
    for (size_t i = 0; i < grad_temb.size(); ++i) {
      worst = std::max(worst, std::fabs(grad_temb[i] - gold.at("grad_temb")[i]));
      largest = std::max(largest, std::fabs(gold.at("grad_temb")[i]));
    }
    EXPECT_LE(worst, 2e-6 * largest);
  }
}

TEST(AdalnValues, RefusesByName) {
  const auto call = [](const char* method, AdalnSize size, DType weight) {
    return MakeAdalnCall(method, size, weight, weight, 1);
  };
  const auto expect = [](const OpCall& c, Reason reason, const char* field, const char* value) {
    const ErrorDetail detail = OpRefusal(c);
    EXPECT_EQ(detail.reason, reason) << field;
    EXPECT_EQ(detail.field, field) << value;
    EXPECT_EQ(detail.value, value) << field;
    EXPECT_FALSE(detail.allowed.empty()) << field;
  };
  for (const char* method : kAdalnMethods) {
    expect(call(method, {0, 2, 8}, DType::kBF16), Reason::kShapeMismatch, "temb", "T = 0");
    expect(call(method, {2, 0, 8}, DType::kBF16), Reason::kShapeMismatch, "weight", "H = 0");
    expect(call(method, {2, 2, 12}, DType::kBF16), Reason::kShapeMismatch, "weight", "D = 12");
    expect(call(method, {2, 2, 6}, DType::kF32), Reason::kShapeMismatch, "weight", "D = 6");
    OpCall parts = call(method, {2, 2, 8}, DType::kBF16);
    parts.integers["fold_parts"] = 4;
    expect(parts, Reason::kAttributeOutOfRange, "fold_parts", "4");
  }
  OpCall backward = call(kAdalnMethods[2], {2, 2, 8}, DType::kBF16);
  backward.inputs["grad_gate_mlp"] =
      MakeOpTensor(DType::kF32, {6, 2}, std::vector<float>(12, 1.0f));
  expect(backward, Reason::kDtypeNotAllowed, "grad_gate_mlp", "F32");
  for (const char* name : adaln::kGradientNames) backward.inputs.erase(name);
  expect(backward, Reason::kMissingTensor, "grad_shift_msa", "absent");
}

// A cast before the call is refused by the signature, as is a count of channels that 18 does not
// divide.
TEST(AdalnValues, TheSignatureTakesFp32TembAndWholeChunks) {
  for (const char* name : kAdalnMethods) {
    OpCall call;
    call.method = name;
    const MethodSignature& signature = OpMethod(call).signature;
    EXPECT_EQ(signature.inputs[0].name, "temb");
    EXPECT_EQ(signature.inputs[0].dtypes, std::vector<DType>{DType::kF32});
    EXPECT_EQ(signature.inputs[1].dims_text, "18*H,D");
    for (const TensorSpec& input : signature.inputs) {
      EXPECT_TRUE(input.contiguous) << input.name;
      EXPECT_EQ(input.alignment, 16) << input.name;
    }
  }
}

}  // namespace
}  // namespace rlk::test
