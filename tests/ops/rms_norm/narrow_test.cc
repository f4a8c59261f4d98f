// Narrow rows, which the cpu backend takes several at once: whatever rows share a batch, however
// full the last one is and however the tensors lie, the bits are those of the contract.
#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/ops/rms_norm/norm_call.h"
#include "tests/ops/rms_norm/norm_emulation.h"

namespace rlk::test {
namespace {

// Beyond the lengths that share a batch, and row counts beside those of full ones.
constexpr int64_t kLengthMax = 66;
constexpr int64_t kBatchElements = 1024;

// One extreme value in every seventh row or so, and some rows of nothing else.
void PlantExtremes(NormTensor* tensor) {
  constexpr float kExtremes[] = {NAN,    INFINITY, -INFINITY, 1e19f, -3e38f,
                                 1e-45f, -1e-30f,  0.0f,      -0.0f};
  constexpr size_t kCount = std::size(kExtremes);
  if (!tensor->present()) return;
  std::vector<float> values = NormValues(*tensor);
  const auto length = static_cast<size_t>(tensor->shape[tensor->shape.rank() - 1]);
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t row = i / length;
    if (i % (7 * length + 1) == 0 || row % 31 == 30) values[i] = kExtremes[row % kCount];
  }
  *tensor = MakeNormTensor(tensor->dtype, tensor->shape, values);
}

std::vector<NormCall> NarrowCalls(const NormKind& kind, int64_t length, int64_t rows) {
  std::vector<NormCall> calls;
  for (DType x : kNormDTypes) {
    const auto seed = static_cast<uint32_t>(97 * length + rows + static_cast<int>(x));
    const DType weight = kind.hf() || seed % 2 == 0 ? x : DType::kF32;
    const DType grad = seed % 3 == 0 ? DType::kF32 : x;
    for (bool backward : {false, true}) {
      NormCall call = MakeNormCall(kind, backward, x, weight, grad, rows, length, seed);
      PlantExtremes(&call.x);
      PlantExtremes(&call.gate);
      if (backward && seed % 2 == 0) {
        call.dweight_acc_in = MakeNormTensor(DType::kF32, {length}, NormalRow(length, 9.0f, 3));
      }
      if (backward && seed % 5 == 0) {
        call.rstd = MakeNormTensor(DType::kF32, {rows}, NormalRow(rows, 1.0f, 4));
      }
      calls.push_back(std::move(call));
    }
  }
  return calls;
}

class NormNarrow : public testing::TestWithParam<NormKind> {};

TEST_P(NormNarrow, EqualsTheContractAtEveryLengthAndRowCount) {
  for (int64_t length = 1; length <= kLengthMax; ++length) {
    const int64_t full = kBatchElements / length;
    const int64_t row_counts[] = {full - 1, full, full + 1, 2 * full + 5, 131};
    // All lengths up to 17 with all row counts, longer ones with one each.
    for (size_t i = 0; i < std::size(row_counts); ++i) {
      if (length > 17 && i != static_cast<size_t>(length) % std::size(row_counts)) continue;
      for (const NormCall& call : NarrowCalls(GetParam(), length, row_counts[i])) {
        const NormOutputs expected = NormEmulation(call).Run();
        for (Isa isa : AvailableIsas()) {
          ExpectSameOutputs(RunNormIsa(call, isa), expected,
                            NormName(call) + " " + std::string(IsaName(isa)));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(NormNarrow, StridesAlignmentThreadsAndWhatIsWantedDoNotMatter) {
  ThreadPool pool(3);
  for (int64_t length : {1, 2, 3, 8, 13, 16, 20, 33}) {
    for (const NormCall& call : NarrowCalls(GetParam(), length, 18000 / length + 1)) {
      const NormOutputs straight = RunNormCpu(call);
      const auto with = [&](const auto& change, const char* what) {
        NormCall other = call;
        for (NormTensor* tensor : {&other.x, &other.weight, &other.gate, &other.grad_y, &other.rstd,
                                   &other.dweight_acc_in}) {
          *tensor = change(*tensor);
        }
        ExpectSameOutputs(RunNormCpu(other, &pool), straight, NormName(call) + what);
      };
      with([](const NormTensor& t) { return t; }, " on threads");
      with([](const NormTensor& t) { return Spread(t, 1, 5); }, " padded");
      with([](const NormTensor& t) { return Spread(t, 3, 1); }, " strided");
      with([](const NormTensor& t) { return Unaligned(t); }, " unaligned");
      for (const auto& [name, bytes] : straight) {
        NormCall one = call;
        one.wanted = {name};
        ExpectSameOutputs(RunNormCpu(one, &pool), {{name, bytes}}, NormName(call) + " " + name);
      }
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(NormNarrow, ARowAloneEqualsTheRowInABatch) {
  constexpr int64_t kRows = 300;
  for (int64_t length : {1, 5, 8, 16}) {
    for (const NormCall& call : NarrowCalls(GetParam(), length, kRows)) {
      const NormOutputs all = RunNormCpu(call);
      for (int64_t row : {0, 1, 7, 63, 64, 127, 128, 204, 299}) {
        for (const auto& [name, bytes] : RunNormCpu(Rows(call, row, 1))) {
          if (name == "grad_weight" || name == "dweight_acc") continue;
          const auto& whole = all.at(name);
          const auto size = static_cast<int64_t>(whole.size()) / kRows;
          EXPECT_EQ(bytes, std::vector<std::byte>(whole.begin() + row * size,
                                                  whole.begin() + (row + 1) * size))
              << NormName(call) << " " << name << " row " << row;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, NormNarrow, testing::ValuesIn(kNormKinds));

}  // namespace
}  // namespace rlk::test
