// timestep_mlp_fp32 on the host: bits, invariance, accuracy, refusals, stored digests.
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/ops/timestep_mlp_fp32/timestep_mlp_fp32.h"
#include "server/engine/contract_check.h"
#include "tests/ops/timestep_mlp_fp32/mlp_call.h"
#include "tests/support/golden_json.h"

namespace rlk::test {
namespace {

OpOutputs RunIsa(const OpCall& call, Isa isa) {
  return RunOpWith(call, [&](const KernelArgs& args) {
    return call.method == kMlpForward ? RunTimestepMlpForwardCpu(args, isa)
                                      : RunTimestepMlpBackwardCpu(args, isa);
  });
}

// The forward's pre as the backward's input.
OpCall WithSavedPre(const OpCall& backward, const MlpSize& size) {
  OpCall forward = backward;
  forward.method = kMlpForward;
  forward.inputs.erase("grad_y");
  forward.inputs["b2"] = NormalTensor(DType::kF32, {size.outputs}, 1.0f, 1);
  OpCall saved = backward;
  saved.inputs["pre"] = {DType::kF32, {size.rows, size.hidden}, RunOpCpu(forward).at("pre")};
  return saved;
}

TEST(Mlp, EqualsTheContractWithEveryInstructionSet) {
  uint32_t seed = 1;
  for (const MlpSize& size : kMlpSizes) {
    for (bool backward : {false, true}) {
      const OpCall call = MakeMlpCall(backward, size, seed += 10);
      const OpOutputs expected = EmulateMlp(call, size);
      ExpectSameOp(RunOpCpu(call), expected, MlpName(call, size));
      for (Isa isa : AvailableIsas()) {
        ExpectSameOp(RunIsa(call, isa), expected, MlpName(call, size));
      }
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Mlp, TheSavedPreActivationGivesTheRecomputedBits) {
  for (const MlpSize& size : kMlpSizes) {
    const OpCall call = MakeMlpCall(true, size, 5);
    ExpectSameOp(RunOpCpu(WithSavedPre(call, size)), RunOpCpu(call), MlpName(call, size));
  }
}

TEST(Mlp, ARowAloneEqualsTheRowInABatch) {
  const MlpSize size = {65, 36, 132, 17};
  for (bool backward : {false, true}) {
    OpCall call = MakeMlpCall(backward, size, 3);
    call.wanted = {backward ? "grad_x" : "y"};
    const std::vector<std::byte> whole = RunOpCpu(call).at(call.wanted[0]);
    for (int64_t rows = 1; rows <= 64; rows += rows < 17 ? 1 : 47) {
      for (int64_t first : {int64_t{0}, 65 - rows}) {
        OpCall part = call;
        for (const char* name : {"x", "grad_y"}) {
          if (call.input(name).present()) part.inputs[name] = OpRows(call.input(name), first, rows);
        }
        const std::vector<std::byte> got = RunOpCpu(part).at(call.wanted[0]);
        const auto row = static_cast<int64_t>(whole.size()) / 65;
        EXPECT_TRUE(std::equal(got.begin(), got.end(), whole.begin() + first * row))
            << call.method << " rows " << first << " + " << rows;
      }
    }
  }
}

TEST(Mlp, ThreadsAndWantedOutputsDoNotMatter) {
  const MlpSize size = {9, 132, 260, 130};
  for (bool backward : {false, true}) {
    const OpCall call = MakeMlpCall(backward, size, 3);
    const OpOutputs all = RunOpCpu(call);
    ThreadPool pool(3);
    ExpectSameOp(RunOpCpu(call, &pool), all, MlpName(call, size) + " on threads");
    for (const auto& [name, bytes] : all) {
      OpCall one = call;
      one.wanted = {name};
      ExpectSameOp(RunOpCpu(one), {{name, bytes}}, call.method + " " + name);
    }
  }
}

bool Close(const std::vector<float>& got, const std::vector<double>& gold) {
  for (size_t i = 0; i < got.size(); ++i) {
    if (!(std::fabs(got[i] - gold[i]) <= 1e-4 + 1e-4 * std::fabs(gold[i]))) return false;
  }
  return true;
}

// Class reduction, F32, of the tolerance contract ws1-c1-v2.
TEST(Mlp, MeetsTheToleranceContractAndTheJudgementFindsPlantedFaults) {
  const MlpSize size = {33, 256, 260, 65};
  for (bool backward : {false, true}) {
    const OpCall call = MakeMlpCall(backward, size, 17);
    const OpOutputs outputs = RunOpCpu(call);
    for (const auto& [name, gold] : RunOpGolden(call)) {
      double sum = 0;
      for (double value : gold) sum += value * value;
      ASSERT_GE(std::sqrt(sum / static_cast<double>(gold.size())), 1.0) << name;
      const std::vector<float> got = OpValues(DType::kF32, outputs.at(name));
      EXPECT_TRUE(Close(got, gold)) << name;
      std::vector<float> wrong(got.size(), 0.0f);
      EXPECT_FALSE(Close(wrong, gold)) << name << " zero";
      for (size_t i = 0; i < got.size(); ++i) wrong[i] = got[i] * 1.05f;
      EXPECT_FALSE(Close(wrong, gold)) << name << " scaled";
      wrong = got;
      std::swap(wrong[1], wrong[got.size() - 2]);
      EXPECT_FALSE(Close(wrong, gold)) << name << " swapped";
    }
  }
}

TEST(Mlp, RefusesShapesByName) {
  const struct {
    MlpSize size;
    const char *field, *value;
  } cases[] = {{{0, 4, 4, 1}, "x", "T = 0"},  {{1, 0, 4, 1}, "w1", "K = 0"},
               {{1, 6, 4, 1}, "w1", "K = 6"}, {{1, 4, 0, 1}, "w1", "M = 0"},
               {{1, 4, 7, 1}, "w1", "M = 7"}, {{1, 4, 4, 0}, "w2", "N = 0"}};
  for (const auto& c : cases) {
    for (bool backward : {false, true}) {
      const ErrorDetail detail = OpRefusal(MakeMlpCall(backward, c.size, 1));
      EXPECT_EQ(detail.reason, Reason::kShapeMismatch) << c.value;
      EXPECT_EQ(detail.field, c.field) << c.value;
      EXPECT_EQ(detail.value, c.value);
    }
  }
}

// Any argument in BF16 is an error: the embedder is never cast.
TEST(Mlp, RefusesEveryBf16ArgumentByName) {
  for (bool backward : {false, true}) {
    const MlpSize size = {2, 4, 8, 4};
    OpCall good = MakeMlpCall(backward, size, 1);
    if (backward) good = WithSavedPre(good, size);
    const Method& method = OpMethod(good);
    for (const TensorSpec& bad : method.signature.inputs) {
      OpCall spoiled = good;
      spoiled.inputs[bad.name] =
          MakeOpTensor(DType::kBF16, good.input(bad.name).shape, OpValues(good.input(bad.name)));
      Call call;
      call.method = &method;
      for (size_t i = 0; i < method.signature.inputs.size(); ++i) {
        const OpTensor& tensor = spoiled.input(method.signature.inputs[i].name);
        TensorArg arg;
        arg.spec = static_cast<int32_t>(i);
        arg.dtype = tensor.dtype;
        arg.shape = tensor.shape;
        arg.strides = ContiguousStrides(tensor.shape);
        arg.data.pieces.push_back(std::as_bytes(std::span(tensor.bytes)));
        arg.data.size = static_cast<int64_t>(tensor.bytes.size());
        call.inputs.push_back(std::move(arg));
      }
      const absl::Status status = server::CheckCall(call, {}).status();
      const ErrorDetail detail = GetErrorDetail(status).value_or(ErrorDetail{});
      EXPECT_EQ(detail.reason, Reason::kDtypeNotAllowed) << status;
      EXPECT_EQ(detail.field, bad.name);
      EXPECT_EQ(detail.allowed, "F32");
    }
  }
}

TEST(Mlp, DigestsAreTheStoredOnes) {
  const nlohmann::json golden = LoadGolden("digests_timestep_mlp_fp32.json");
  const std::vector<MlpDigestCase> cases = MlpDigestCases(golden);
  EXPECT_GE(cases.size(), 12u);
  for (const MlpDigestCase& c : cases) {
    for (Isa isa : AvailableIsas()) {
      EXPECT_EQ(nlohmann::json(OpDigests(c.call, RunIsa(c.call, isa))).dump(),
                nlohmann::json(c.digests).dump())
          << MlpName(c.call, c.size);
    }
  }
}

}  // namespace
}  // namespace rlk::test
