// timestep_sinusoid_h3 on the host: bits, invariance, accuracy, refusals, stored digests.
#include <cmath>
#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/ops/timestep_sinusoid_h3/timestep_sinusoid_h3.h"
#include "kernels/registry/selector.h"
#include "tests/ops/timestep_sinusoid_h3/sinusoid_call.h"
#include "tests/support/golden_json.h"

namespace rlk::test {
namespace {

OpOutputs RunIsa(const OpCall& call, Isa isa) {
  return RunOpWith(call, [&](const KernelArgs& args) {
    return call.method == kSinusoidForward ? RunTimestepSinusoidForwardCpu(args, isa)
                                           : RunTimestepSinusoidBackwardCpu(args, isa);
  });
}

std::vector<OpCall> Calls() {
  std::vector<OpCall> calls;
  uint32_t seed = 1;
  for (int64_t channels : kSinusoidChannels) {
    for (int64_t rows : {1, 2, 3, 17, 65}) {
      const DType dtype = kSinusoidDTypes[seed % 3];
      const double period = seed % 4 == 0 ? 1e-5 : seed % 4 == 1 ? 1.0 : 10000.0;
      calls.push_back(SinusoidForward(dtype, rows, channels, period, seed));
      calls.push_back(SinusoidBackward(dtype, rows, channels, period, seed));
      ++seed;
    }
  }
  return calls;
}

TEST(Sinusoid, EqualsTheContractWithEveryInstructionSet) {
  for (const OpCall& call : Calls()) {
    const OpOutputs expected = EmulateSinusoid(call);
    ExpectSameOp(RunOpCpu(call), expected, SinusoidName(call));
    for (Isa isa : AvailableIsas()) ExpectSameOp(RunIsa(call, isa), expected, SinusoidName(call));
    if (HasFatalFailure()) return;
  }
}

// Every timestep that BF16 and FP16 have in [0, 1], and FP32 ones in strides.
TEST(Sinusoid, EveryShortTimestepEqualsTheContract) {
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    OpCall call = SinusoidForward(dtype, 1, 16, 10000, 1);
    OpTensor& timestep = call.inputs["timestep"];
    const uint16_t one = dtype == DType::kF16 ? 0x3c00 : 0x3f80;
    timestep.shape[0] = one + 1;
    timestep.bytes.resize(2 * (size_t{one} + 1));
    for (uint16_t bits = 0; bits <= one; ++bits) memcpy(&timestep.bytes[2 * bits], &bits, 2);
    ExpectSameOp(RunOpCpu(call), EmulateSinusoid(call), std::string(DTypeName(dtype)));
  }
  OpCall call = SinusoidForward(DType::kF32, 1, 8, 10000, 1);
  std::vector<float> values;
  for (uint32_t bits = 0; bits <= 0x3f800000u; bits += 9973) {
    values.push_back(arith::BitsFloat(bits));
  }
  call.inputs["timestep"] =
      MakeOpTensor(DType::kF32, {static_cast<int64_t>(values.size())}, values);
  ExpectSameOp(RunOpCpu(call), EmulateSinusoid(call), "F32");
}

TEST(Sinusoid, ARowAloneEqualsTheRowInAnyBatchOnAnyThreads) {
  for (const OpCall& call : {SinusoidForward(DType::kF32, 257, 258, 10000, 3),
                             SinusoidBackward(DType::kF32, 257, 258, 10000, 3)}) {
    const OpOutputs whole = RunOpCpu(call);
    ThreadPool pool(3);
    ExpectSameOp(RunOpCpu(call, &pool), whole, SinusoidName(call) + " on threads");
    for (int64_t row : {0, 1, 100, 256}) {
      OpCall alone = call;
      for (auto& [name, tensor] : alone.inputs) tensor = OpRows(tensor, row, 1);
      for (const auto& [name, bytes] : RunOpCpu(alone)) {
        const auto at = static_cast<int64_t>(bytes.size()) * row;
        EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), whole.at(name).begin() + at))
            << SinusoidName(call) << " row " << row;
      }
    }
  }
}

// Strides of the inputs, and bytes that are not aligned, do not matter.
TEST(Sinusoid, StridesAndAlignmentDoNotMatter) {
  for (const OpCall& call : {SinusoidForward(DType::kBF16, 9, 66, 10000, 3),
                             SinusoidBackward(DType::kF16, 9, 66, 10000, 3)}) {
    const OpOutputs expected = RunOpCpu(call);
    BoundOp bound(call, &OnTheHost);
    std::vector<TensorView> views(bound.args().inputs.begin(), bound.args().inputs.end());
    std::vector<std::vector<std::byte>> memory(views.size());
    for (size_t i = 0; i < views.size(); ++i) {
      TensorView& view = views[i];
      const int64_t size = DTypeSize(view.dtype), count = view.elements();
      memory[i].assign(static_cast<size_t>((3 * count + 2) * size), std::byte{0xff});
      for (int64_t e = 0; e < count; ++e) {
        memcpy(&memory[i][static_cast<size_t>((3 * e + 1) * size + 1)],
               view.as<std::byte>() + e * size, static_cast<size_t>(size));
      }
      for (int d = 0; d < view.strides.rank(); ++d) view.strides[d] *= 3;
      view.data = &memory[i][static_cast<size_t>(size + 1)];
    }
    const OpOutputs spread = RunOpWith(call, [&](const KernelArgs& args) {
      KernelArgs strided = args;
      strided.inputs = views;
      return OpVariant(call, Backend::kCpu).launch(strided);
    });
    ExpectSameOp(spread, expected, SinusoidName(call));
  }
}

TEST(Sinusoid, IsAccurateAndTheJudgementFindsPlantedFaults) {
  for (int64_t channels : {64, 256}) {
    const OpCall forward = SinusoidForward(DType::kF32, 65, channels, 10000, 7);
    const std::vector<float> y = OpValues(DType::kF32, RunOpCpu(forward).at("embedding"));
    const std::vector<double> gold = RunOpGolden(forward)["embedding"];
    const auto worst = [&](const std::vector<float>& got) {
      double error = 0;
      for (size_t i = 0; i < got.size(); ++i) error = std::max(error, std::fabs(got[i] - gold[i]));
      return error;
    };
    EXPECT_LE(worst(y), 4e-7);
    std::vector<float> fault(y.size(), 0.0f);
    EXPECT_GT(worst(fault), 1e-5);
    for (size_t i = 0; i < y.size(); ++i) fault[i] = y[i] * 1.05f;
    EXPECT_GT(worst(fault), 1e-5);
    // Sine first: the other convention.
    const auto half = static_cast<size_t>(channels / 2);
    for (size_t i = 0; i < y.size(); ++i) {
      fault[i] = y[i % (2 * half) < half ? i + half : i - half];
    }
    EXPECT_GT(worst(fault), 1e-5);

    const OpCall backward = SinusoidBackward(DType::kF32, 65, channels, 10000, 7);
    const std::vector<float> grad = OpValues(DType::kF32, RunOpCpu(backward).at("grad_timestep"));
    const std::vector<double> gold_grad = RunOpGolden(backward)["grad_timestep"];
    double rms = 0;
    for (size_t t = 0; t < grad.size(); ++t) {
      EXPECT_NEAR(grad[t], gold_grad[t], 1e-5 + 1e-5 * std::fabs(gold_grad[t]));
      rms += gold_grad[t] * gold_grad[t];
    }
    EXPECT_GE(std::sqrt(rms / static_cast<double>(grad.size())), 1.0);
  }
}

TEST(Sinusoid, TheEndsAndTheFirstFrequencyAreExact) {
  const OpCall call = SinusoidForward(DType::kF32, 2, 256, 10000, 1);
  const std::vector<float> y = OpValues(DType::kF32, RunOpCpu(call).at("embedding"));
  EXPECT_EQ(y[0], arith::Cos(1.0f));
  EXPECT_EQ(y[128], arith::Sin(1.0f));
  for (size_t k = 0; k < 128; ++k) {
    EXPECT_EQ(y[256 + k], 1.0f);
    EXPECT_EQ(arith::FloatBits(y[256 + 128 + k]), 0u);
  }
}

absl::Status CheckValues(const OpCall& call) {
  BoundOp bound(call, &OnTheHost);
  return OpMethod(call).decl.validate_values(bound.args());
}

TEST(Sinusoid, RefusesTimestepsThatAreNoFractions) {
  EXPECT_EQ(OpMethod(SinusoidForward(DType::kF32, 1, 2, 1, 1)).decl.checked_inputs,
            std::vector<std::string>{"timestep"});
  const float bad[] = {-1e-30f, 1.0000001f, 2, 500, 1000, -1, INFINITY, -INFINITY, NAN};
  for (DType dtype : kSinusoidDTypes) {
    OpCall call = SinusoidForward(dtype, 5, 4, 10000, 1);
    EXPECT_TRUE(CheckValues(call).ok());
    std::vector<float> values = OpValues(call.input("timestep"));
    for (float value : bad) {
      values[3] = value;
      call.inputs["timestep"] = MakeOpTensor(dtype, {5}, values);
      const float rounded = OpValues(call.input("timestep"))[3];
      if (rounded >= 0 && rounded <= 1) continue;  // 1.0000001 in BF16
      const absl::Status status = CheckValues(call);
      const ErrorDetail detail = GetErrorDetail(status).value_or(ErrorDetail{});
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << value;
      EXPECT_EQ(detail.reason, Reason::kValueOutOfRange) << value;
      EXPECT_EQ(detail.field, "timestep");
      EXPECT_THAT(detail.value, testing::HasSubstr("(element 3)"));
      // Shown as it is, not as the nearest that would be allowed.
      if (std::isfinite(rounded)) EXPECT_EQ(std::strtof(detail.value.c_str(), nullptr), rounded);
    }
    // -0 is 0.
    values[3] = -0.0f;
    call.inputs["timestep"] = MakeOpTensor(dtype, {5}, values);
    EXPECT_TRUE(CheckValues(call).ok());
  }
}

TEST(Sinusoid, RefusesEmptyShapesByName) {
  OpCall call = SinusoidForward(DType::kF32, 2, 4, 10000, 1);
  call.inputs["timestep"] = MakeOpTensor(DType::kF32, {0}, {});
  EXPECT_EQ(OpRefusal(call).field, "timestep");
  call = SinusoidBackward(DType::kF32, 2, 4, 10000, 1);
  for (const Dims& shape : {Dims{0, 4}, Dims{2, 0}, Dims{1, 65538}}) {
    for (const char* name : {"grad_embedding", "embedding"}) {
      call.inputs[name] = MakeOpTensor(
          DType::kF32, shape, std::vector<float>(static_cast<size_t>(ElementCount(shape))));
    }
    const ErrorDetail detail = OpRefusal(call);
    EXPECT_EQ(detail.reason, Reason::kShapeMismatch);
    EXPECT_EQ(detail.field, "grad_embedding");
  }
}

TEST(Sinusoid, H3IsDeclaredAndNotAvailableWithoutCuda) {
  const OpCall call = SinusoidForward(DType::kF32, 2, 4, 10000, 1);
  BoundOp bound(call, &OnTheHost);
  SelectionQuery query;
  query.contract = "timestep_sinusoid_h3/h3-v1";
  const absl::Status status = Select(OpRegistry(), OpMethod(call), query, bound.args()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(GetErrorDetail(status).value_or(ErrorDetail{}).reason, Reason::kContractUnavailable);
}

TEST(Sinusoid, DigestsAreTheStoredOnes) {
  const nlohmann::json golden = LoadGolden("digests_timestep_sinusoid_h3.json");
  const std::vector<SinusoidDigestCase> cases = SinusoidDigestCases(golden);
  EXPECT_GE(cases.size(), 20u);
  for (const SinusoidDigestCase& c : cases) {
    for (Isa isa : AvailableIsas()) {
      EXPECT_EQ(nlohmann::json(OpDigests(c.call, RunIsa(c.call, isa))).dump(),
                nlohmann::json(c.digests).dump())
          << SinusoidName(c.call);
    }
  }
}

}  // namespace
}  // namespace rlk::test
