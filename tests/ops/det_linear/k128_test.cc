// Contract bf16-k128-v1 on the cpu backend: against an emulation written from its text and the law
// of the tensor-core step, bit for bit; parts, tensor-parallel slices, carries, rows, refusals.
#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "tests/ops/det_linear/k128_emulation.h"
#include "tests/ops/det_linear/linear_call.h"

namespace rlk::test {
namespace {

constexpr const char* kForward = kLinearMethods[0];
constexpr const char* kBackwardInput = kLinearMethods[1];
constexpr const char* kBackwardWeight = kLinearMethods[2];

OpCall MakeCall(const std::string& method, LinearSize size, int64_t activation, DType wide,
                uint32_t seed) {
  return MakeBf16LinearCall(kK128LinearContract, method, size, activation, wide, true, seed);
}

OpCall WithParts(OpCall call, int64_t parts) {
  call.integers["fold_parts"] = parts;
  return call;
}

void ExpectContract(const OpCall& call, LinearSize size) {
  const OpOutputs expected = EmulateK128(call, size);
  for (Isa isa : AvailableIsas()) {
    ExpectSameOp(RunBf16LinearIsa(call, isa), expected,
                 LinearName(call, size) + " " + std::string(IsaName(isa)));
  }
}

class K128 : public testing::TestWithParam<const char*> {};

// T, N and K that cross every vector, step and chunk, in each method's own reduction.
TEST_P(K128, EqualsTheContract) {
  uint32_t seed = 1;
  for (int64_t outputs : {1, 3, 17, 33, 128, 130, 264}) {
    for (int64_t inputs : {8, 120, 128, 136, 264, 1032}) {
      for (int64_t rows : {1, 2, 3, 9, 64, 65, 127, 128, 129, 257}) {
        if (rows * outputs * inputs > 160000) continue;
        const LinearSize size = {rows, outputs, inputs};
        ExpectContract(MakeCall(GetParam(), size, seed % 3 == 0 ? kSilu : kNoActivation,
                                seed % 2 == 0 ? DType::kF32 : DType::kBF16, seed),
                       size);
        seed += 11;
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Infinities, NaN, overflow, subnormals and zeros of both signs among numbers.
TEST_P(K128, ExtremeValuesFollowTheOperations) {
  const float extremes[] = {0.0f,   -0.0f,  1e-30f,   -1e-40f,   1e19f, -1e19f, 3e38f,
                            1e-39f, -3e38f, INFINITY, -INFINITY, NAN,   1.0f,   -1e-39f};
  const LinearSize size = {28, 70, 144};
  for (int64_t activation : {kNoActivation, kSilu}) {
    for (DType wide : {DType::kF32, DType::kBF16}) {
      OpCall call = MakeCall(GetParam(), size, activation, wide, 5);
      for (auto& [name, tensor] : call.inputs) {
        std::vector<float> values = OpValues(tensor);
        const auto width = static_cast<size_t>(tensor.shape[tensor.shape.rank() - 1]);
        for (size_t i = 0; i < values.size(); ++i) {
          const size_t row = i / width;
          if (i % 11 == 3 && row % 3 != 0) values[i] = extremes[(row / 2 + i) % 14];
        }
        tensor = MakeOpTensor(tensor.dtype, tensor.shape, values);
      }
      ExpectContract(call, size);
    }
  }
}

TEST_P(K128, ThreadsAndSingleOutputsDoNotMatter) {
  ThreadPool pool(3);
  const LinearSize size = {67, 331, 136};
  for (DType wide : {DType::kBF16, DType::kF32}) {
    OpCall call = MakeCall(GetParam(), size, kNoActivation, wide, 9);
    const OpOutputs expected = RunOpCpu(call);
    ExpectSameOp(RunOpCpu(call, &pool), expected, LinearName(call, size));
    for (const auto& [name, bytes] : expected) {
      call.wanted = {name};
      ExpectSameOp(RunOpCpu(call), {{name, bytes}}, name);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, K128, testing::ValuesIn(kLinearMethods));

// One reduction of `length`, whole and cut as ranks of a tensor-parallel group have it.
struct Reduction {
  const char* method;
  int64_t length;

  OpCall Whole() const {
    const bool forward = std::string(method) == kForward;
    const LinearSize size = forward ? LinearSize{3, 5, length} : LinearSize{3, length, 8};
    OpCall call = MakeCall(method, size, kNoActivation, DType::kF32, 31);
    call.inputs.erase("bias");
    call.wanted = {forward ? "y" : "grad_x"};
    return call;
  }

  // Rank `rank` of `ranks`: its slice of the reduction.
  OpCall Slice(int64_t ranks, int64_t rank) const {
    OpCall call = Whole();
    const int64_t here = length / ranks;
    const bool forward = std::string(method) == kForward;
    for (const char* name : {"x", "weight", "grad_y"}) {
      const auto found = call.inputs.find(name);
      if (found == call.inputs.end()) continue;
      OpTensor& tensor = found->second;
      if (!forward && std::string(name) == "weight") {
        tensor = OpRows(tensor, rank * here, here);
        continue;
      }
      const std::vector<float> values = OpValues(tensor);
      const int64_t rows = tensor.shape[0];
      std::vector<float> cut;
      for (int64_t t = 0; t < rows; ++t) {
        const auto begin = values.begin() + t * length + rank * here;
        cut.insert(cut.end(), begin, begin + here);
      }
      tensor = MakeOpTensor(tensor.dtype, {rows, here}, cut);
    }
    return call;
  }

  std::vector<float> Run(const OpCall& call, int64_t parts) const {
    return OpValues(DType::kF32, RunOpCpu(WithParts(call, parts)).begin()->second);
  }
};

std::vector<float> Sum(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> sum(a.size());
  for (size_t i = 0; i < a.size(); ++i) sum[i] = a[i] + b[i];
  return sum;
}

class K128Parts : public testing::TestWithParam<const char*> {};

TEST_P(K128Parts, EachNumberOfPartsEqualsTheContract) {
  for (int64_t length : {256, 512, 1536, 768}) {
    const Reduction reduction = {GetParam(), length};
    const bool forward = std::string(GetParam()) == kForward;
    const LinearSize size = forward ? LinearSize{3, 5, length} : LinearSize{3, length, 8};
    for (int64_t parts : {1, 2, 4}) {
      if (length % (128 * parts) != 0) continue;
      OpCall call = WithParts(reduction.Whole(), parts);
      call.wanted.clear();
      ExpectContract(call, size);
    }
  }
}

// Ranks that each fold their slice as fewer parts, and an FP32 sum in the order of the parts.
TEST_P(K128Parts, TensorParallelRanksHaveTheBitsOfOne) {
  const Reduction reduction = {GetParam(), 6144};
  const std::vector<float> one = reduction.Run(reduction.Whole(), 4);
  std::vector<float> q[4], h[2];
  for (int64_t rank = 0; rank < 4; ++rank) q[rank] = reduction.Run(reduction.Slice(4, rank), 1);
  for (int64_t rank = 0; rank < 2; ++rank) h[rank] = reduction.Run(reduction.Slice(2, rank), 2);
  EXPECT_EQ(Sum(Sum(q[0], q[1]), Sum(q[2], q[3])), one);
  EXPECT_EQ(Sum(h[0], h[1]), one);
  // The order is seen: one run, or a sum of the quarters in order, is something else.
  EXPECT_NE(reduction.Run(reduction.Whole(), 1), one);
  EXPECT_NE(Sum(Sum(Sum(q[0], q[1]), q[2]), q[3]), one);
}

TEST_P(K128Parts, LongReductionsOfWholeQuartersHaveFourByDefault) {
  const struct {
    int64_t length, parts;
  } cases[] = {{15872, 1}, {16384, 4}, {16512, 1}, {16640, 1}, {16896, 4}};
  for (const auto& c : cases) {
    const Reduction reduction = {GetParam(), c.length};
    const OpCall call = reduction.Whole();
    const std::vector<float> chosen = reduction.Run(call, 0);
    EXPECT_EQ(chosen, reduction.Run(call, c.parts)) << c.length;
    if (c.parts == 4) EXPECT_NE(chosen, reduction.Run(call, 1)) << c.length;
    // The report says which.
    const MethodDecl& decl = OpMethod(call).decl;
    EXPECT_EQ(decl.resolved_attribute, "fold_parts");
    EXPECT_EQ(decl.resolve(BoundOp(call, &OnTheHost).args()), c.parts) << c.length;
    EXPECT_EQ(decl.resolve(BoundOp(WithParts(call, 1), &OnTheHost).args()), 1) << c.length;
  }
}

TEST_P(K128Parts, AreRefusedWhereTheyAreNotWholeChunks) {
  const struct {
    int64_t length, parts;
    const char* allowed;
  } cases[] = {{136, 2, "0, 1"},    {128, 2, "0, 1"},     {256, 4, "0, 1, 2"},
               {768, 4, "0, 1, 2"}, {640, 4, "0, 1"},     {512, 3, "0, 1, 2, 4"},
               {8, 4, "0, 1"},      {96, 3, "0, 1, 2, 4"}};
  for (const auto& c : cases) {
    const ErrorDetail detail =
        OpRefusal(WithParts(Reduction{GetParam(), c.length}.Whole(), c.parts));
    EXPECT_EQ(detail.reason, Reason::kAttributeOutOfRange);
    EXPECT_EQ(detail.field, "fold_parts");
    EXPECT_EQ(detail.value, std::to_string(c.parts));
    EXPECT_EQ(detail.allowed, c.allowed) << c.length;
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, K128Parts, testing::Values(kForward, kBackwardInput));

TEST(K128Rows, ARowAloneEqualsTheRowInAnyBatch) {
  for (const char* method : {kForward, kBackwardInput}) {
    const OpCall all = MakeCall(method, {140, 33, 136}, kSilu, DType::kBF16, 3);
    const OpOutputs whole = RunOpCpu(all);
    for (int64_t rows : {1, 2, 3, 7, 8, 9, 31, 63, 64, 65, 127, 128, 129}) {
      const OpOutputs part = RunOpCpu(LinearRowsOf(all, 0, rows));
      for (int64_t row : {int64_t{0}, rows / 2, rows - 1}) {
        ExpectSameOp(LinearOutputRow(part, row, rows), LinearOutputRow(whole, row, 140),
                     std::string(method) + " in " + std::to_string(rows));
      }
      ExpectSameOp(RunOpCpu(LinearRowsOf(all, rows, 1)), LinearOutputRow(whole, rows, 140),
                   std::string(method) + " alone");
    }
  }
}

// FP32 gradients take three products a pair, by their dtype; where BF16 holds them the bits are
// those of BF16 gradients.
TEST(K128Gradients, ThatBf16HoldsHaveTheBitsOfBf16) {
  for (const char* method : {kBackwardInput, kBackwardWeight}) {
    const OpCall narrow = MakeCall(method, {150, 140, 24}, kNoActivation, DType::kBF16, 4);
    OpCall wide = narrow;
    const OpTensor& grad = narrow.input("grad_y");
    wide.inputs["grad_y"] = MakeOpTensor(DType::kF32, grad.shape, OpValues(grad));
    ExpectSameOp(RunOpCpu(wide), RunOpCpu(narrow), method);
  }
}

TEST(K128Fold, IsCarriedAtWholeChunksOfRows) {
  const int64_t rows = 400;
  for (DType wide : {DType::kBF16, DType::kF32}) {
    const OpCall call = MakeCall(kBackwardWeight, {rows, 17, 24}, kNoActivation, wide, 2);
    const OpOutputs whole = RunOpCpu(call);
    for (int64_t cut : {128, 256, 384, 200}) {
      const OpOutputs first = RunOpCpu(LinearRowsOf(call, 0, cut));
      OpCall rest = LinearRowsOf(call, cut, rows - cut);
      rest.inputs["dweight_acc_in"] = {DType::kF32, {17, 24}, first.at("dweight_acc")};
      rest.inputs["dbias_acc_in"] = {DType::kF32, {17}, first.at("dbias_acc")};
      rest.integers["rows_before"] = cut;
      if (cut % 128 == 0) {
        ExpectSameOp(RunOpCpu(rest), whole, "cut at " + std::to_string(cut));
        continue;
      }
      const ErrorDetail detail = OpRefusal(rest);
      EXPECT_EQ(detail.field, "rows_before");
      EXPECT_EQ(detail.value, "200");
      EXPECT_EQ(detail.allowed, "a multiple of 128");
      // Rightly: the chunks would be others.
      rest.integers["rows_before"] = 0;
      EXPECT_NE(RunOpCpu(rest).at("dweight_acc"), whole.at("dweight_acc"));
    }
  }
}

// The bias's gradient of up to 128 rows is the left fold of the other contract.
TEST(K128Fold, TheBiasGradientOfOneChunkIsALeftFold) {
  for (int64_t rows : {1, 127, 128, 200}) {
    OpCall call = MakeCall(kBackwardWeight, {rows, 65, 8}, kNoActivation, DType::kF32, 6);
    call.inputs.erase("dbias_acc_in");
    call.wanted = {"dbias_acc"};
    const OpOutputs chunks = RunOpCpu(call);
    call.contract = kBf16LinearContract;
    EXPECT_EQ(chunks == RunOpCpu(call), rows <= 128) << rows;
  }
}

TEST(K128Values, OtherContractsOfBf16StayTheDefault) {
  const OpCall call = MakeCall(kForward, {2, 3, 8}, kNoActivation, DType::kBF16, 1);
  std::vector<std::string> ids;
  for (const Contract& contract : OpMethod(call).decl.contracts) ids.push_back(contract.id);
  const auto at = [&](const char* id) { return std::find(ids.begin(), ids.end(), id); };
  EXPECT_LT(at(kBf16LinearContract), at(kK128LinearContract));
  EXPECT_NE(at(kK128LinearContract), ids.end());
}

}  // namespace
}  // namespace rlk::test
