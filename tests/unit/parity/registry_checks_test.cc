// Every operator of the registry passes the checks, forward and backward, by its signature alone: a
// new operator is covered by itself.
#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/parity/check_invariance.h"
#include "server/parity/check_parity.h"
#include "tests/support/op_call.h"
#include "tests/unit/parity/check_fixture.h"

namespace rlk::server {
namespace {

constexpr int64_t kLeading = 11;  // rows of a leading "..."

// Small, and such that rows of F32 and BF16 operands are whole 16-byte chunks.
int64_t LetterSize(char letter, int64_t factor) {
  if (factor > 1) return letter == 'T' ? kLeading : 3;
  const std::map<char, int64_t> sizes = {
      {'T', kLeading}, {'K', 40}, {'M', 24}, {'D', 16}, {'N', 17}};
  const auto found = sizes.find(letter);
  return found == sizes.end() ? 33 : found->second;
}

DType DTypeOf(const MethodSignature& signature, const TensorSpec& spec, DType wanted) {
  const std::vector<DType>& dtypes = spec.dtypes;
  if (std::find(dtypes.begin(), dtypes.end(), wanted) != dtypes.end()) return wanted;
  if (!dtypes.empty()) return dtypes.front();
  return DTypeOf(signature, signature.inputs[static_cast<size_t>(spec.same_dtype_as)], wanted);
}

// Timesteps are fractions: the ranges of values are the one thing that a signature does not say.
HostTensor Fractions(DType dtype, const Dims& shape) {
  std::vector<float> values;
  for (int64_t i = 0; i < ElementCount(shape); ++i) {
    values.push_back(static_cast<float>(i % 17) / 16.0f);
  }
  const test::OpTensor made = test::MakeOpTensor(dtype, shape, values);
  auto data = AllocateElements(dtype, shape);
  std::memcpy(data->get(), made.bytes.data(), made.bytes.size());
  return {dtype, shape, *std::move(data)};
}

// All inputs, optional ones too, of the wanted dtype where it is allowed.
ValueCall SmallCall(const Method& method, DType wanted, int64_t rows) {
  ValueCall call;
  call.method = &method;
  const MethodSignature& signature = method.signature;
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const TensorSpec& spec = signature.inputs[i];
    Dims shape;
    if (spec.dims.leading) shape.push_back(rows);
    for (const DimPattern& dim : spec.dims.dims) {
      const int64_t size = dim.letter == 'T' ? rows : LetterSize(dim.letter, dim.factor);
      shape.push_back(dim.letter == 0 ? dim.factor : dim.factor * size);
    }
    const DType dtype = DTypeOf(signature, spec, wanted);
    auto tensor = NormalTensor(dtype, shape, 40 + i);
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    if (spec.name == "timestep") tensor = Fractions(dtype, shape);
    call.inputs.push_back({static_cast<int32_t>(i), *std::move(tensor)});
  }
  return call;
}

struct MethodCase {
  std::string method;
  DType dtype;
};

std::vector<MethodCase> ForwardMethods() {
  std::vector<MethodCase> cases;
  for (const auto& method : test::OpRegistry().methods()) {
    if (method->signature.direction != Direction::kForward) continue;
    std::vector<DType> dtypes;
    for (const TensorSpec& spec : method->signature.inputs) {
      for (const DType dtype : spec.dtypes) {
        if (std::find(dtypes.begin(), dtypes.end(), dtype) == dtypes.end()) {
          dtypes.push_back(dtype);
        }
      }
    }
    for (const DType dtype : dtypes) cases.push_back({method->decl.method, dtype});
  }
  return cases;
}

class EveryOperator : public testing::TestWithParam<MethodCase> {
 protected:
  const Registry& registry_ = test::OpRegistry();
  test::CheckEngine engine_{registry_};
  const Method& method_ = *registry_.Find(GetParam().method);
  const bool gradients_ = BackwardMethods(registry_, method_).ok();
};

TEST_P(EveryOperator, IsInvariant) {
  EngineRunner runner(engine_.engine(), {.backend = "cpu"});
  const auto context = test::NewContext();
  const auto result =
      CheckInvariance(registry_, runner, SmallCall(method_, GetParam().dtype, kLeading),
                      {.axes = {}, .repeats = 8, .gradients = gradients_}, *context);
  ASSERT_TRUE(result.ok()) << result.status();
  for (const AxisResult& axis : result->axes) {
    const std::string what =
        axis.method->decl.method + " " + std::string(InvarianceAxisName(axis.axis));
    EXPECT_TRUE(axis.passed()) << what << ": " << axis.difference->output << " of "
                               << axis.difference->layout;
    if (axis.applicable) {
      EXPECT_GT(axis.elements, 0) << what;
    } else {
      EXPECT_FALSE(axis.note.empty()) << what;
    }
    if (axis.method->signature.direction == Direction::kForward) {
      EXPECT_TRUE(axis.applicable) << what << ": " << axis.note;
    }
  }
}

TEST_P(EveryOperator, AgreesWithItsReference) {
  EngineRunner cpu(engine_.engine(), {.backend = "cpu"});
  EngineRunner golden(engine_.engine(), {.backend = "golden"});
  ParityQuery query;
  query.call = SmallCall(method_, GetParam().dtype, kLeading);
  query.left = {.runner = &cpu, .provided = {}};
  query.right = {.runner = &golden, .provided = {}, .golden = true};
  query.judgment = Judgment::kAccuracy;
  query.gradients = gradients_;
  for (const auto mode : {GradientOptions::Mode::kRandom, GradientOptions::Mode::kOnes}) {
    query.gradient.mode = mode;
    const auto context = test::NewContext();
    const auto result = CheckParity(registry_, ToleranceContract::Builtin(), query, *context);
    ASSERT_TRUE(result.ok()) << result.status();
    for (const OutputVerdict& verdict : result->outputs) {
      EXPECT_TRUE(verdict.passed())
          << verdict.method->decl.method << " " << verdict.output << ": "
          << verdict.comparison.mismatched() << " of " << verdict.comparison.stats.compared;
    }
    EXPECT_TRUE(result->not_compared.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryOperator, testing::ValuesIn(ForwardMethods()),
                         [](const auto& info) {
                           std::string name =
                               info.param.method + "_" + std::string(DTypeName(info.param.dtype));
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

TEST(RegistryChecks, EveryForwardButTheTableHasItsGradientsChecked) {
  std::vector<std::string> without;
  for (const auto& method : test::OpRegistry().methods()) {
    if (method->signature.direction != Direction::kForward) continue;
    if (!BackwardMethods(test::OpRegistry(), *method).ok()) without.push_back(method->decl.method);
  }
  // Its backward takes the gradients of the six chunks, which are the outputs of `forward`.
  EXPECT_EQ(without, std::vector<std::string>{"adaln_projection_3mod.forward_table"});
}

struct ContractCase {
  const char* name;
  const char* method;
  const char* contract;
  int64_t rows;
  // Sizes of chunks that the accumulator is carried over; the others are refused.
  const char* note;
};

class CarriedContract : public testing::TestWithParam<ContractCase> {};

TEST_P(CarriedContract, CarriesItsAccumulatorOverTheChunksThatItAllows) {
  const Registry& registry = test::OpRegistry();
  test::CheckEngine engine(registry);
  EngineRunner runner(engine.engine(), {.backend = "cpu", .contracts = {GetParam().contract}});
  const auto context = test::NewContext();
  const auto result = CheckInvariance(
      registry, runner, SmallCall(*registry.Find(GetParam().method), DType::kBF16, GetParam().rows),
      {.axes = {InvarianceAxis::kChunk}, .gradients = true}, *context);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->passed);
  const AxisResult& backward = result->axes.back();
  EXPECT_TRUE(backward.applicable);
  EXPECT_NE(backward.note.find(GetParam().note), std::string::npos) << backward.note;
}

INSTANTIATE_TEST_SUITE_P(
    Contracts, CarriedContract,
    testing::Values(ContractCase{"LeftFold", "rms_norm.forward", "rms_norm/leftfold-v1", 300, ""},
                    ContractCase{"Chunk128", "rms_norm.forward", "rms_norm/chunk128-v1", 300,
                                 "over chunks of 5, 16, 64, 100, 150 rows"},
                    ContractCase{"Chunk128OfFewRows", "rms_norm.forward", "rms_norm/chunk128-v1", 9,
                                 "too few rows"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(RegistryChecks, SavedOutputsArePassedOnWhereTheOperatorAsksForThem) {
  const Registry& registry = test::OpRegistry();
  test::CheckEngine engine(registry);
  EngineRunner runner(engine.engine(), {.backend = "cpu"});
  ValueCall call = SmallCall(*registry.Find("det_linear.forward"), DType::kF32, 5);
  constexpr int64_t kSilu = 2;
  call.attributes = {
      {.spec = FindAttribute(call.signature(), "activation"), .number = 0, .integer = kSilu}};
  const auto context = test::NewContext();
  const auto runs = RunWithGradients(registry, runner, call, true, {}, std::byte{0}, *context);
  ASSERT_TRUE(runs.ok()) << runs.status();
  ASSERT_EQ(runs->size(), 3u);
  for (size_t i = 1; i < 3; ++i) EXPECT_NE(InputOf((*runs)[i].call, "pre"), nullptr);
}

}  // namespace
}  // namespace rlk::server
