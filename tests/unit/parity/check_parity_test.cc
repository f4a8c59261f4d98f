#include "server/parity/check_parity.h"

#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/status.h"
#include "tests/unit/parity/check_fixture.h"
#include "tests/unit/parity/probe_op.h"

namespace rlk::server {
namespace {

using test::Fault;

class CheckParityTest : public testing::Test {
 protected:
  ParityQuery Query(Fault fault, int64_t rows = 9) {
    ParityQuery query;
    query.call = test::ProbeCall(*registry_, rows, fault);
    query.left = {.runner = &cpu_, .provided = {}};
    query.right = {.runner = &golden_, .provided = {}, .golden = true};
    query.judgment = Judgment::kAccuracy;
    query.gradients = true;
    return query;
  }
  absl::StatusOr<ParityResult> Check(const ParityQuery& query) {
    return CheckParity(*registry_, ToleranceContract::Builtin(), query, *context_);
  }

  const std::unique_ptr<Registry> registry_ = test::MakeProbeRegistry();
  test::CheckEngine engine_{*registry_};
  EngineRunner cpu_{engine_.engine(), {.backend = "cpu", .digests = true}};
  EngineRunner golden_{engine_.engine(), {.backend = "golden", .digests = true}};
  const std::unique_ptr<CheckContext> context_ = test::NewContext();
};

// Of the first difference.
std::string_view TriageOf(const ParityResult& result) {
  return TriageName(result.first_difference()->comparison.triage.triage);
}

TEST_F(CheckParityTest, PassesACleanKernelForwardAndBackward) {
  const auto result = Check(Query(Fault::kNone));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->passed);
  EXPECT_EQ(result->first_difference(), nullptr);
  std::vector<std::string> names;
  for (const OutputVerdict& verdict : result->outputs) {
    names.push_back(verdict.method->decl.method + " " + verdict.output);
    EXPECT_TRUE(verdict.passed()) << names.back();
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"probe.forward y", "probe.forward s", "probe.backward grad_x",
                                      "probe.backward grad_weight"}));
  EXPECT_EQ(result->elements, 9 * 6 + 9 + 9 * 6 + 6);
  // Both sides say what ran, on which inputs.
  ASSERT_EQ(result->left.size(), 2u);
  ASSERT_EQ(result->right.size(), 2u);
  EXPECT_EQ(result->left[1].run.report->kernel, "probe_cpu");
  EXPECT_EQ(result->right[1].run.report->kernel, "probe_golden");
  ASSERT_EQ(result->left[1].run.report->input_digests.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(result->left[1].run.report->input_digests[i].tensor->Text(),
              result->right[1].run.report->input_digests[i].tensor->Text());
  }
}

TEST_F(CheckParityTest, NamesTheFirstOutputThatDiffers) {
  const auto result = Check(Query(Fault::kCreatesNan));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->passed);
  ASSERT_NE(result->first_difference(), nullptr);
  EXPECT_EQ(result->first_difference()->output, "y");
  EXPECT_EQ(result->first_difference()->nan_created_left, 1);
  EXPECT_EQ(result->first_difference()->nan_created_right, 0);
  EXPECT_EQ(TriageOf(*result), "nonfinite");
}

TEST_F(CheckParityTest, NanOfTheInputsIsNotCreated) {
  ParityQuery query = Query(Fault::kNone);
  auto data = AllocateElements(DType::kF32, {9, 6});
  ASSERT_TRUE(data.ok());
  std::memset(data->get(), 0xff, 9 * 6 * sizeof(float));
  query.call.inputs[0].tensor = {DType::kF32, {9, 6}, *std::move(data)};
  const auto result = Check(query);
  ASSERT_TRUE(result.ok()) << result.status();
  for (const OutputVerdict& verdict : result->outputs) {
    EXPECT_EQ(verdict.nan_created_left, 0) << verdict.output;
  }
}

TEST_F(CheckParityTest, ProvesElementsThatNobodyWrote) {
  ParityQuery query = Query(Fault::kUnwrittenTile);
  query.gradients = false;
  const auto accuracy = Check(query);
  ASSERT_TRUE(accuracy.ok()) << accuracy.status();
  EXPECT_FALSE(accuracy->passed);
  EXPECT_EQ(accuracy->first_difference()->output, "y");
  EXPECT_EQ(accuracy->first_difference()->unwritten_left, 2);
  EXPECT_EQ(accuracy->first_difference()->unwritten_right, 0);
  EXPECT_EQ(TriageOf(*accuracy), "unwritten");
  // Both sides leave out the same elements, whose bits are then equal.
  query.judgment = Judgment::kParity;
  query.right = query.left;
  const auto same = Check(query);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_FALSE(same->passed);
  EXPECT_EQ(same->first_difference()->comparison.mismatched(), 0);
  EXPECT_EQ(same->first_difference()->unwritten_left, 2);
  EXPECT_EQ(same->first_difference()->unwritten_right, 2);
  EXPECT_EQ(TriageOf(*same), "unwritten");
}

TEST_F(CheckParityTest, WrittenElementsWithTheBitsOfPoisonAreNotUnwritten) {
  ParityQuery query = Query(Fault::kNone);
  query.gradients = false;
  query.judgment = Judgment::kParity;
  query.right = query.left;
  // x = poison and weight = 1 give y = poison.
  auto x = AllocateElements(DType::kF32, {9, 6});
  ASSERT_TRUE(x.ok());
  std::memset(x->get(), 0xA5, 9 * 6 * sizeof(float));
  auto ones = OnesTensor(DType::kF32, {6});
  ASSERT_TRUE(ones.ok());
  query.call.inputs[0].tensor = {DType::kF32, {9, 6}, *std::move(x)};
  query.call.inputs[1].tensor = *std::move(ones);
  const auto result = Check(query);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->passed);
}

TEST_F(CheckParityTest, TakesProvidedTensorsForASide) {
  ParityQuery query = Query(Fault::kNone);
  query.judgment = Judgment::kParity;
  const auto run = cpu_.Run(query.call, std::byte{0}, *context_);
  ASSERT_TRUE(run.ok()) << run.status();
  query.right = {.runner = nullptr, .provided = {{"y", run->outputs[0].tensor}}};
  const auto result = Check(query);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->passed);
  ASSERT_EQ(result->outputs.size(), 1u);
  // What the other side lacks is named, not passed over.
  ASSERT_EQ(result->not_compared.size(), 3u);
  EXPECT_EQ(result->not_compared[0].output, "s");
}

TEST_F(CheckParityTest, AProvidedTensorOfAnotherShapeOrDtypeIsADifference) {
  struct Case {
    const char* name;
    DType dtype;
    Dims shape;
    Difference difference;
  } const cases[] = {
      {"transposed", DType::kF32, {6, 9}, Difference::kShape},
      {"fewer rows", DType::kF32, {8, 6}, Difference::kShape},
      {"empty", DType::kF32, {0, 6}, Difference::kShape},
      {"scalar", DType::kF32, {}, Difference::kShape},
      {"narrower", DType::kBF16, {9, 6}, Difference::kDtype},
      {"wider", DType::kF64, {9, 6}, Difference::kDtype},
      {"integers", DType::kI32, {9, 6}, Difference::kDtype},
  };
  for (const Case& c : cases) {
    ParityQuery query = Query(Fault::kNone);
    query.judgment = Judgment::kParity;
    query.gradients = false;
    auto tensor = NormalTensor(c.dtype, c.shape, 5);
    ASSERT_TRUE(tensor.ok()) << c.name;
    query.right = {.runner = nullptr, .provided = {{"y", *std::move(tensor)}}};
    const auto result = Check(query);
    ASSERT_TRUE(result.ok()) << c.name << ": " << result.status();
    EXPECT_FALSE(result->passed) << c.name;
    EXPECT_EQ(result->outputs[0].comparison.difference, c.difference) << c.name;
    EXPECT_EQ(TriageOf(*result), "incomparable") << c.name;
    EXPECT_EQ(result->elements, 0) << c.name;
  }
}

TEST_F(CheckParityTest, TakesGivenGradients) {
  ParityQuery query = Query(Fault::kNone);
  auto gradient = NormalTensor(DType::kF32, {9, 6}, 77);
  ASSERT_TRUE(gradient.ok());
  query.gradient.given = {{"grad_y", *gradient}};
  const auto result = Check(query);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(InputOf(result->left[1].call, "grad_y")->data, gradient->data);
}

TEST_F(CheckParityTest, ErrorsNameTheSide) {
  ParityQuery query = Query(Fault::kFails);
  std::swap(query.left, query.right);
  const auto result = Check(query);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(GetErrorDetail(result.status())->field.rfind("right", 0), 0u) << result.status();
}

TEST_F(CheckParityTest, RefusesQueriesWithoutMeaning) {
  ParityQuery none = Query(Fault::kNone);
  none.left.runner = none.right.runner = nullptr;
  EXPECT_EQ(GetErrorDetail(Check(none).status())->field, "right.provided");
  ParityQuery accuracy = Query(Fault::kNone);
  accuracy.right = accuracy.left;
  EXPECT_EQ(GetErrorDetail(Check(accuracy).status())->field, "judgment");
  ParityQuery unknown = Query(Fault::kNone);
  unknown.right = {.runner = nullptr, .provided = {{"z", {}}}};
  unknown.judgment = Judgment::kParity;
  EXPECT_EQ(GetErrorDetail(Check(unknown).status())->reason, Reason::kUnknownOutput);
}

TEST_F(CheckParityTest, EndsAtItsDeadline) {
  CheckContext late({.deadline = std::chrono::steady_clock::now()}, test::kMuchWork);
  const auto result =
      CheckParity(*registry_, ToleranceContract::Builtin(), Query(Fault::kNone), late);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace rlk::server
