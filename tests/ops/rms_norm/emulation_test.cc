// The cpu backend against the straight-line emulation, bit for bit, and the instruction sets
// against each other.
#include <algorithm>

#include "gtest/gtest.h"
#include "tests/ops/rms_norm/norm_call.h"
#include "tests/ops/rms_norm/norm_emulation.h"

namespace rlk::test {
namespace {

// All dtype combinations on short rows, two on long ones.
std::vector<NormCall> CallsOfLength(int64_t length) {
  std::vector<NormCall> calls;
  const int64_t rows = length <= 257 ? 5 : length <= 8193 ? 2 : 1;
  for (const NormKind& kind : kNormKinds) {
    for (DType x : kNormDTypes) {
      for (DType weight : {x, DType::kF32}) {
        for (DType grad : {x, DType::kF32}) {
          if (!Allowed(kind, x, weight)) continue;
          if (x == DType::kF32 && (weight != x || grad != x)) continue;
          if (length > 257 && (weight == x) != (grad == DType::kF32)) continue;
          const auto seed = static_cast<uint32_t>(length * 31 + static_cast<int>(x));
          if (grad == x) {
            calls.push_back(MakeNormCall(kind, false, x, weight, grad, rows, length, seed));
          }
          calls.push_back(MakeNormCall(kind, true, x, weight, grad, rows, length, seed));
        }
      }
    }
  }
  return calls;
}

class NormEmulated : public testing::TestWithParam<int64_t> {};

TEST_P(NormEmulated, EqualsTheContract) {
  for (const NormCall& call : CallsOfLength(GetParam())) {
    ExpectSameOutputs(RunNormCpu(call), NormEmulation(call).Run(), NormName(call));
    if (HasFatalFailure()) return;
  }
}

TEST_P(NormEmulated, EveryInstructionSetGivesTheSame) {
  for (const NormCall& call : CallsOfLength(GetParam())) {
    const NormOutputs base = RunNormIsa(call, Isa::kBase);
    for (Isa isa : {Isa::kV3, Isa::kV4}) {
      if (isa > BestIsa()) continue;
      ExpectSameOutputs(RunNormIsa(call, isa), base, NormName(call));
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Lengths, NormEmulated, testing::ValuesIn(kNormLengths));

TEST(NormEmulation, FoldsManyRowsAndCarries) {
  for (const NormKind& kind : kNormKinds) {
    for (int64_t rows : {1, 127, 128, 129, 300}) {
      NormCall call = MakeNormCall(kind, true, DType::kBF16, DType::kBF16, DType::kBF16, rows, 9,
                                   static_cast<uint32_t>(rows));
      ExpectSameOutputs(RunNormCpu(call), NormEmulation(call).Run(), NormName(call));
      call.dweight_acc_in = MakeNormTensor(DType::kF32, {9}, NormalRow(9, 30.0f, 77));
      call.rows_before = 256;
      ExpectSameOutputs(RunNormCpu(call), NormEmulation(call).Run(), NormName(call) + " carried");
    }
  }
}

TEST(NormEmulation, ExtremeValuesAndEveryEps) {
  const float extremes[] = {0.0f,   -0.0f,    1e-30f, -1e-40f,  1e19f,     -1e19f, 3e38f,
                            1e-45f, 65504.0f, 6e-8f,  INFINITY, -INFINITY, NAN,    1.0f};
  for (const NormKind& kind : kNormKinds) {
    for (DType x : kNormDTypes) {
      for (double eps : {1e-6, 1e-30, 1e-12, 1.0}) {
        for (bool backward : {false, true}) {
          NormCall call = MakeNormCall(kind, backward, x, x, x, 28, 33, 5);
          call.eps = eps;
          std::vector<float> values = NormValues(call.x);
          for (size_t i = 0; i < 28; ++i) {
            // Rows 0 .. 13: one extreme value among normal ones; 14 .. 27: nothing else.
            const float value = extremes[i % 14];
            if (i < 14) values[i * 33 + 7] = value;
            if (i >= 14) std::fill_n(values.begin() + static_cast<int64_t>(i * 33), 33, value);
          }
          call.x = MakeNormTensor(x, call.x.shape, values);
          if (call.gated()) {
            std::vector<float> gate = NormValues(call.gate);
            for (size_t i = 0; i < 14; ++i) gate[i * 33 + i] = extremes[i];
            call.gate = MakeNormTensor(x, call.gate.shape, gate);
          }
          ExpectSameOutputs(RunNormCpu(call), NormEmulation(call).Run(), NormName(call));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(NormEmulation, AGivenStatisticIsUsedAsItIs) {
  for (const NormKind& kind : kNormKinds) {
    NormCall call = MakeNormCall(kind, true, DType::kF16, DType::kF16, DType::kF32, 6, 130, 9);
    call.rstd = MakeNormTensor(DType::kF32, {6}, {1, 0.5f, 2, 0.1f, NAN, 3e38f});
    ExpectSameOutputs(RunNormCpu(call), NormEmulation(call).Run(), NormName(call));
  }
}

}  // namespace
}  // namespace rlk::test
