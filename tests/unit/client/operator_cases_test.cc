// Inputs of `rlk check-operator`, and which of its options an operator has a use for. The
// signatures are made up where no operator has what an option is for.
#include "client/cli/operator_cases.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

TensorSpec Input(const char* name, std::vector<DType> dtypes) {
  TensorSpec spec;
  spec.name = name;
  spec.dtypes = std::move(dtypes);
  return spec;
}

TEST(MakeInput, FillsIntegersWithTheTokenAndFloatsWithTheConstant) {
  const CaseOptions options = {
      .sizes = {}, .constant = true, .constant_value = 0.75, .token_value = 7};
  const auto ids = MakeInput(Input("ids", {DType::kI32}), DType::kI32, {2, 3}, 1, options);
  ASSERT_TRUE(ids.ok()) << ids.status();
  for (const int32_t id : ids->as<int32_t>()) EXPECT_EQ(id, 7);
  const auto long_ids = MakeInput(Input("ids", {DType::kI64}), DType::kI64, {4}, 1, options);
  ASSERT_TRUE(long_ids.ok()) << long_ids.status();
  for (const int64_t id : long_ids->as<int64_t>()) EXPECT_EQ(id, 7);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    const auto x = MakeInput(Input("x", {dtype}), dtype, {5}, 1, options);
    ASSERT_TRUE(x.ok()) << x.status();
    const auto first = x->bytes().first(static_cast<size_t>(DTypeSize(dtype)));
    const auto last = x->bytes().last(static_cast<size_t>(DTypeSize(dtype)));
    EXPECT_TRUE(std::equal(first.begin(), first.end(), last.begin())) << DTypeName(dtype);
    EXPECT_NE(first.back(), std::byte{0}) << DTypeName(dtype);
  }
}

TEST(MakeInput, RefusesATokenThatTheDtypeDoesNotHold) {
  CaseOptions options = {.sizes = {}, .constant = true, .token_value = int64_t{1} << 31};
  const auto ids = MakeInput(Input("ids", {DType::kI32}), DType::kI32, {2}, 1, options);
  EXPECT_EQ(GetErrorDetail(ids.status())->field, "--token-value");
  options.token_value = 1;
  const auto flags = MakeInput(Input("flags", {DType::kBool}), DType::kBool, {2}, 1, options);
  EXPECT_EQ(GetErrorDetail(flags.status())->field, "--token-value");
}

TEST(MakeInput, TimestepsAreFractions) {
  const auto t = MakeInput(Input("timestep", {DType::kF32}), DType::kF32, {1000}, 3, {.sizes = {}});
  ASSERT_TRUE(t.ok()) << t.status();
  for (const float value : t->as<float>()) EXPECT_TRUE(value >= 0 && value < 1) << value;
}

// What a linear layer sums must be no larger for more columns: tolerances do not grow with them.
TEST(MakeInput, WeightsAreOverTheRootOfTheirColumns) {
  TensorSpec weights = Input("w1", {DType::kF32});
  weights.dims.dims = {{.letter = 'M'}, {.letter = 'K'}};
  TensorSpec rows = Input("x", {DType::kF32});
  rows.dims.dims = {{.letter = 'T'}, {.letter = 'K'}};
  const Dims shape = {16, 64};
  const auto w = MakeInput(weights, DType::kF32, shape, 5, {.sizes = {}});
  const auto x = MakeInput(rows, DType::kF32, shape, 5, {.sizes = {}});
  ASSERT_TRUE(w.ok() && x.ok()) << w.status() << x.status();
  for (size_t i = 0; i < 16 * 64; ++i) EXPECT_EQ(w->as<float>()[i], x->as<float>()[i] / 8) << i;
  EXPECT_TRUE(MakeInput(weights, DType::kF32, {16, 0}, 5, {.sizes = {}}).ok());
}

// Attention as RL-Kernel's options see it, but for heads: ids, a rotary base and an epsilon.
std::vector<MethodSignature> Rich() {
  MethodSignature signature;
  signature.method = "rich.forward";
  signature.operator_name = "rich";
  signature.inputs = {Input("ids", {DType::kI32, DType::kI64}), Input("x", {DType::kF32})};
  signature.inputs[0].dims.leading = true;
  signature.inputs[1].dims.leading = true;
  signature.inputs[1].dims.dims = {{.letter = 'K'}};
  signature.attributes.resize(2);
  signature.attributes[0].name = "theta";
  signature.attributes[1].name = "eps";
  return {signature};
}

std::vector<MethodSignature> Poor() {
  MethodSignature signature;
  signature.method = "poor.forward";
  signature.operator_name = "poor";
  signature.inputs = {Input("x", {DType::kF32})};
  signature.inputs[0].dims.dims = {{.letter = 'D'}};
  return {signature};
}

TEST(CheckCaseOptions, AnOptionIsTakenWhereItMeansSomething) {
  for (const char* option :
       {"--batch", "--seq", "--vocab", "--k-dim", "--theta", "--eps", "--token-value"}) {
    CaseOptions options;
    options.given = {{option, "3"}};
    EXPECT_TRUE(CheckCaseOptions(options, Rich()).ok()) << option;
    const auto detail = GetErrorDetail(CheckCaseOptions(options, Poor()));
    ASSERT_TRUE(detail.has_value()) << option;
    EXPECT_EQ(detail->field, option);
    EXPECT_EQ(detail->value, "3");
    EXPECT_EQ(detail->allowed, "--size LETTER=N of D");
  }
  for (const char* option : {"--normalized-dim", "--n-dim", "--n-heads", "--head-dim"}) {
    CaseOptions options;
    options.given = {{option, "3"}};
    EXPECT_EQ(GetErrorDetail(CheckCaseOptions(options, Rich()))->allowed,
              "--batch, --seq, --vocab, --k-dim, --theta, --eps, --token-value; --size LETTER=N of "
              "K; NAME=VALUE of eps, theta")
        << option;
  }
  CaseOptions size;
  size.given = {{"--size", "D=4"}};
  EXPECT_TRUE(CheckCaseOptions(size, Poor()).ok());
  EXPECT_EQ(GetErrorDetail(CheckCaseOptions(size, Rich()))->field, "--size");
}

}  // namespace
}  // namespace rlk::cli
