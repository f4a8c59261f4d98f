// The BF16 contracts at the size of MiniMax-H3's AdaLN, 2048 rows: stored digests of whole outputs,
// and rows and channels of them against the cpu backend, which would need hours for all.
// tests/golden/digests_bf16_full.json has the definition.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "kernels/ops/det_linear/det_linear.h"
#include "tests/gpu/bf16_runner.h"
#include "tests/ops/det_linear/linear_call.h"
#include "tests/support/golden_json.h"

namespace rlk::gpu_test {
namespace {

using test::kLinearMethods;
using test::OpCall;
using test::OpTensor;

constexpr int64_t kRows = 2048, kOutputs = 96768, kInputs = 2688;

// Made once: half a gigabyte each.
const std::map<std::string, OpTensor>& Tensors() {
  static const auto* const tensors = new std::map<std::string, OpTensor>{
      {"x", test::CongruentTensor(DType::kBF16, {kRows, kInputs}, 1, 0x1p-21f)},
      {"weight", test::CongruentTensor(DType::kBF16, {kOutputs, kInputs}, 2, 0x1p-23f)},
      {"bias", test::CongruentTensor(DType::kBF16, {kOutputs}, 3, 0x1p-22f)},
      {"grad_y", test::CongruentTensor(DType::kBF16, {kRows, kOutputs}, 4, 0x1p-22f)},
  };
  return *tensors;
}

OpCall FullCall(const std::string& method, const std::string& contract) {
  OpCall call;
  call.method = method;
  call.contract = contract;
  call.integers["activation"] = test::kNoActivation;
  const auto add = [&](const char* name) { call.inputs[name] = Tensors().at(name); };
  if (method == kLinearMethods[0]) {
    for (const char* name : {"x", "weight", "bias"}) add(name);
    call.integers["output_dtype"] = static_cast<int64_t>(DType::kBF16);
    call.wanted = {"y"};
  } else if (method == kLinearMethods[1]) {
    for (const char* name : {"grad_y", "weight"}) add(name);
    call.integers["output_dtype"] = static_cast<int64_t>(DType::kF32);
    call.wanted = {"grad_x"};
  } else {
    for (const char* name : {"grad_y", "x"}) add(name);
    call.wanted = {"grad_weight", "grad_bias"};
  }
  return call;
}

// Columns [begin, begin + count) of a [rows, columns] tensor.
OpTensor ColumnsOf(const OpTensor& tensor, int64_t begin, int64_t count) {
  const int64_t rows = tensor.shape[0], width = tensor.shape[1];
  const auto size = static_cast<int64_t>(tensor.bytes.size()) / (rows * width);
  OpTensor cut = tensor;
  cut.shape[1] = count;
  cut.bytes.clear();
  for (int64_t row = 0; row < rows; ++row) {
    const auto first = tensor.bytes.begin() + (row * width + begin) * size;
    cut.bytes.insert(cut.bytes.end(), first, first + count * size);
  }
  return cut;
}

// Pieces [begin, begin + count) of `pieces` of every output.
test::OpOutputs PiecesOf(const test::OpOutputs& outputs, int64_t begin, int64_t count,
                         int64_t pieces) {
  test::OpOutputs cut;
  for (const auto& [name, bytes] : outputs) {
    const int64_t size = static_cast<int64_t>(bytes.size()) / pieces;
    cut[name] = {bytes.begin() + begin * size, bytes.begin() + (begin + count) * size};
  }
  return cut;
}

// Rows of y and grad_x at the edges of tiles, and channels of grad_weight and grad_bias.
void ExpectPartsEqualCpu(const OpCall& call, const test::OpOutputs& got) {
  if (call.method == kLinearMethods[2]) {
    constexpr int64_t kCount = 8;
    for (int64_t begin : {int64_t{0}, int64_t{124}, int64_t{48380}, kOutputs - kCount}) {
      OpCall part = call;
      part.inputs["grad_y"] = ColumnsOf(call.input("grad_y"), begin, kCount);
      test::ExpectSameOp(PiecesOf(got, begin, kCount, kOutputs), test::RunOpCpu(part, AllCores()),
                         "channels from " + std::to_string(begin));
    }
    return;
  }
  for (int64_t row : {int64_t{0}, int64_t{127}, int64_t{1024}, kRows - 1}) {
    test::ExpectSameOp(PiecesOf(got, row, 1, kRows),
                       test::RunOpCpu(test::LinearRowsOf(call, row, 1), AllCores()),
                       "row " + std::to_string(row));
  }
}

TEST(Bf16FullGpu, HasTheStoredDigestsAndTheBitsOfCpu) {
  const nlohmann::json golden = test::LoadGolden("digests_bf16_full.json");
  ASSERT_EQ(golden.at("cases").size(), 6u);
  for (const auto& c : golden.at("cases")) {
    const OpCall call = FullCall("det_linear." + c.at("method").get<std::string>(),
                                 "det_linear/" + c.at("contract").get<std::string>());
    const std::vector<const Variant*> variants = CudaVariantsOf(call);
    ASSERT_FALSE(variants.empty()) << call.method << " " << call.contract;
    const Variant& variant = *variants.back();
    SCOPED_TRACE(call.method + " " + call.contract + " " + variant.kernel);
    const test::OpOutputs got = RunOpCuda(call, variant);
    EXPECT_EQ(nlohmann::json(test::OpDigests(call, got)).dump(), c.at("digests").dump());
    ExpectPartsEqualCpu(call, got);
  }
}

}  // namespace
}  // namespace rlk::gpu_test
