#include "server/parity/check_invariance.h"

#include <atomic>
#include <barrier>
#include <cstring>
#include <new>
#include <set>
#include <stdexcept>
#include <string>

#include "gtest/gtest.h"
#include "kernels/core/status.h"
#include "tests/unit/parity/check_fixture.h"
#include "tests/unit/parity/probe_op.h"

namespace rlk::server {
namespace {

using test::Fault;

absl::StatusOr<InvarianceResult> Check(Fault fault, InvarianceOptions options, int64_t rows = 37) {
  // Results refer to its methods.
  static const auto registry = test::MakeProbeRegistry();
  test::CheckEngine engine(*registry);
  EngineRunner runner(engine.engine(), {.backend = "cpu"});
  const auto context = test::NewContext();
  options.gradients = true;
  return CheckInvariance(*registry, runner, test::ProbeCall(*registry, rows, fault), options,
                         *context);
}

const AxisResult* FirstFailing(const InvarianceResult& result) {
  for (const AxisResult& axis : result.axes) {
    if (!axis.passed()) return &axis;
  }
  return nullptr;
}

TEST(CheckInvariance, PassesACleanKernelAndSaysHowMuchItCompared) {
  const auto result = Check(Fault::kNone, {.axes = {}, .repeats = 20});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->passed);
  ASSERT_EQ(result->axes.size(), size_t{2 * kInvarianceAxisCount});
  for (const AxisResult& axis : result->axes) {
    const std::string what = axis.method->decl.method + " " +
                             std::string(InvarianceAxisName(axis.axis)) + " " + axis.note;
    EXPECT_TRUE(axis.applicable) << what;
    EXPECT_GT(axis.layouts, 2) << what;
    EXPECT_GT(axis.elements, 37) << what;
    EXPECT_TRUE(axis.passed()) << what;
  }
  ASSERT_EQ(result->runs.size(), 2u);
  EXPECT_EQ(result->runs[1].call.method->decl.method, "probe.backward");
}

struct FaultCase {
  const char* name;
  Fault fault;
  InvarianceAxis axis;
  const char* method;
  const char* output;
  TriageClass triage;
};

class PlantedFault : public testing::TestWithParam<FaultCase> {};

TEST_P(PlantedFault, IsFoundOnItsAxis) {
  const FaultCase& planted = GetParam();
  const auto result = Check(planted.fault, {.axes = {planted.axis}, .repeats = 0});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->passed);
  const AxisResult* const failing = FirstFailing(*result);
  ASSERT_NE(failing, nullptr);
  EXPECT_EQ(failing->axis, planted.axis);
  EXPECT_EQ(failing->method->decl.method, planted.method);
  EXPECT_EQ(failing->difference->output, planted.output);
  EXPECT_FALSE(failing->difference->layout.empty());
  EXPECT_GE(failing->difference->comparison.mismatched(), 1);
  const Triage& triage = failing->difference->comparison.triage;
  EXPECT_EQ(TriageName(triage.triage), TriageName(planted.triage)) << triage.hint;
  EXPECT_FALSE(triage.hint.empty());
}

INSTANTIATE_TEST_SUITE_P(
    Faults, PlantedFault,
    testing::Values(
        FaultCase{"SumThatDependsOnTheBatchBySlices", Fault::kBatchDependentSum,
                  InvarianceAxis::kSlice, "probe.forward", "s", TriageClass::kBatchDependent},
        FaultCase{"SumThatDependsOnTheBatchByChunks", Fault::kBatchDependentSum,
                  InvarianceAxis::kChunk, "probe.forward", "s", TriageClass::kBatchDependent},
        FaultCase{"OneCallInAThousandByRepeats", Fault::kOneInAThousand, InvarianceAxis::kRepeat,
                  "probe.forward", "y", TriageClass::kNotRepeatable},
        FaultCase{"UnwrittenTileByRepeats", Fault::kUnwrittenTile, InvarianceAxis::kRepeat,
                  "probe.forward", "y", TriageClass::kUnwritten},
        FaultCase{"NeighbourThatIsReadByChangedNeighbours", Fault::kReadsNeighbour,
                  InvarianceAxis::kNeighbours, "probe.forward", "y", TriageClass::kBatchDependent},
        FaultCase{"NeighbourThatIsReadByPermutations", Fault::kReadsNeighbour,
                  InvarianceAxis::kPermute, "probe.forward", "y", TriageClass::kBatchDependent},
        FaultCase{"PositionByPadding", Fault::kPositionDependent, InvarianceAxis::kPad,
                  "probe.forward", "y", TriageClass::kBatchDependent},
        FaultCase{"PositionByPermutations", Fault::kPositionDependent, InvarianceAxis::kPermute,
                  "probe.forward", "y", TriageClass::kBatchDependent},
        FaultCase{"CarryAddedLastByChunks", Fault::kCarryAddedLast, InvarianceAxis::kChunk,
                  "probe.backward", "grad_weight", TriageClass::kBatchDependent}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(CheckInvariance, NamesTheRowThatDiffers) {
  const auto result = Check(Fault::kPositionDependent, {.axes = {InvarianceAxis::kSlice}});
  ASSERT_TRUE(result.ok()) << result.status();
  const AxisResult* const failing = FirstFailing(*result);
  ASSERT_NE(failing, nullptr);
  // Row 7 alone is the first of its layout, so it loses its ULP; or a row before it gains one.
  EXPECT_GE(failing->difference->row, 0);
  EXPECT_LT(failing->difference->row, 37);
  EXPECT_EQ(failing->difference->layout.rfind("rows [", 0), 0u);
}

// Left and right as everywhere: what is checked, and what it should be.
TEST(CheckInvariance, ComparesTheLayoutWithTheCall) {
  const auto result = Check(Fault::kUnwrittenTile, {.axes = {InvarianceAxis::kRepeat}});
  ASSERT_TRUE(result.ok()) << result.status();
  const AxisResult* const failing = FirstFailing(*result);
  ASSERT_NE(failing, nullptr);
  const Comparison& comparison = failing->difference->comparison;
  EXPECT_EQ(comparison.left.role, "transformed_config");
  EXPECT_EQ(comparison.right.role, "canonical_config");
  // The call found memory of 0xA5, the run after it of 0x5A.
  ASSERT_TRUE(comparison.first_mismatch.has_value());
  EXPECT_EQ(comparison.first_mismatch->left_bits, "5a5a5a5a");
  EXPECT_EQ(comparison.first_mismatch->right_bits, "a5a5a5a5");
}

TEST(CheckInvariance, DoesNotPassWhereNothingWasCompared) {
  for (const InvarianceAxis axis : {InvarianceAxis::kSlice, InvarianceAxis::kPermute,
                                    InvarianceAxis::kChunk, InvarianceAxis::kNeighbours}) {
    const auto result = Check(Fault::kNone, {.axes = {axis}}, 1);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_FALSE(result->passed) << InvarianceAxisName(axis);
    EXPECT_EQ(FirstFailing(*result), nullptr);
    for (const AxisResult& checked : result->axes) EXPECT_FALSE(checked.applicable);
  }
  const auto repeated = Check(
      Fault::kNone, {.axes = {InvarianceAxis::kSlice, InvarianceAxis::kRepeat}, .repeats = 2}, 1);
  ASSERT_TRUE(repeated.ok()) << repeated.status();
  EXPECT_TRUE(repeated->passed);
}

TEST(CheckInvariance, SaysWhereAnAxisHasNoMeaning) {
  const auto result = Check(Fault::kNone, {.axes = {}, .repeats = 2}, 1);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->passed);
  std::set<std::string> without;
  for (const AxisResult& axis : result->axes) {
    if (axis.applicable) continue;
    EXPECT_FALSE(axis.note.empty());
    EXPECT_EQ(axis.layouts, 0);
    without.insert(std::string(InvarianceAxisName(axis.axis)));
  }
  EXPECT_EQ(without, (std::set<std::string>{"slice", "permute", "chunk", "neighbours"}));
}

TEST(CheckInvariance, SaysWhichOutputsSumOverRows) {
  const auto result = Check(Fault::kNone, {.axes = {InvarianceAxis::kPermute}});
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->axes.size(), 2u);
  EXPECT_EQ(result->axes[0].note, "");
  EXPECT_EQ(result->axes[1].note.rfind("grad_weight", 0), 0u) << result->axes[1].note;
}

// Runs calls by the engine; when `meeting` of them are in it at once, one gets a flipped bit.
class MeetingRunner final : public CallRunner {
 public:
  MeetingRunner(CallRunner& inner, std::ptrdiff_t meeting) : inner_(inner), barrier_(meeting) {}

  absl::StatusOr<MethodRun> Run(const ValueCall& call, std::byte fill,
                                CheckContext& context) override {
    const bool first = runs_.fetch_add(1) == 0;
    auto run = inner_.Run(call, fill, context);
    if (first || !run.ok()) return run;
    barrier_.arrive_and_wait();
    if (runs_.load() > 1 && !flipped_.exchange(true)) {
      HostTensor& tensor = run->outputs[0].tensor;
      auto copy = AllocateElements(tensor.dtype, tensor.shape);
      std::memcpy(copy->get(), tensor.data.get(), static_cast<size_t>(tensor.bytes()));
      copy->get()[0] ^= std::byte{1};
      tensor.data = *std::move(copy);
    }
    return run;
  }

 private:
  CallRunner& inner_;
  std::barrier<> barrier_;
  std::atomic<int64_t> runs_{0};
  std::atomic<bool> flipped_{false};
};

TEST(CheckInvariance, RunsTheCallersOfConcurrencyAtOnceAndFindsWhatTheyDo) {
  const auto registry = test::MakeProbeRegistry();
  test::CheckEngine engine(*registry);
  EngineRunner inner(engine.engine(), {.backend = "cpu"});
  // It would wait for ever if the three callers did not run at once.
  MeetingRunner runner(inner, 3);
  const auto context = test::NewContext();
  const auto result =
      CheckInvariance(*registry, runner, test::ProbeCall(*registry, 12, Fault::kNone),
                      {.axes = {InvarianceAxis::kConcurrency}, .concurrency = 3}, *context);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->passed);
  EXPECT_EQ(result->axes[0].difference->output, "y");
}

// Of the runs after the first, which is the call itself, one throws.
class ThrowingRunner final : public CallRunner {
 public:
  ThrowingRunner(CallRunner& inner, void (*fail)()) : inner_(inner), fail_(fail) {}

  absl::StatusOr<MethodRun> Run(const ValueCall& call, std::byte fill,
                                CheckContext& context) override {
    if (runs_.fetch_add(1) == 3) fail_();
    return inner_.Run(call, fill, context);
  }

 private:
  CallRunner& inner_;
  void (*const fail_)();
  std::atomic<int64_t> runs_{0};
};

TEST(CheckInvariance, AnExceptionInACallersThreadIsItsStatus) {
  struct Case {
    const char* name;
    void (*fail)();
    absl::StatusCode code;
    Reason reason;
    const char* value;
  } const cases[] = {
      {"no memory", [] { throw std::bad_alloc(); }, absl::StatusCode::kResourceExhausted,
       Reason::kBytesExhausted, ""},
      {"a length beyond all bounds", [] { throw std::length_error("too long"); },
       absl::StatusCode::kInternal, Reason::kInternal, "too long"},
      {"something else", [] { throw 7; }, absl::StatusCode::kInternal, Reason::kInternal,
       "an exception of no known type"},
  };
  const auto registry = test::MakeProbeRegistry();
  test::CheckEngine engine(*registry);
  EngineRunner inner(engine.engine(), {.backend = "cpu"});
  for (const Case& c : cases) {
    ThrowingRunner runner(inner, c.fail);
    const auto context = test::NewContext();
    const auto result =
        CheckInvariance(*registry, runner, test::ProbeCall(*registry, 12, Fault::kNone),
                        {.axes = {InvarianceAxis::kConcurrency}, .concurrency = 4}, *context);
    EXPECT_EQ(result.status().code(), c.code) << c.name << ": " << result.status();
    const auto detail = GetErrorDetail(result.status());
    ASSERT_TRUE(detail.has_value()) << c.name;
    EXPECT_EQ(detail->reason, c.reason) << c.name;
    EXPECT_EQ(detail->field, "server") << c.name;
    EXPECT_EQ(detail->value, c.value) << c.name;
    EXPECT_EQ(detail->retry_after_ms > 0, c.reason == Reason::kBytesExhausted) << c.name;
  }
}

TEST(CheckInvariance, IsReproducible) {
  const auto options = InvarianceOptions{.axes = {InvarianceAxis::kPermute}, .seed = 9};
  const auto first = Check(Fault::kPositionDependent, options);
  const auto second = Check(Fault::kPositionDependent, options);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(FirstFailing(*first)->difference->layout, FirstFailing(*second)->difference->layout);
  EXPECT_EQ(FirstFailing(*first)->difference->row, FirstFailing(*second)->difference->row);
}

TEST(CheckInvariance, RefusesWhatIsOutOfRange) {
  const auto result = Check(Fault::kNone, {.axes = {}, .concurrency = kConcurrencyMax + 1});
  EXPECT_EQ(GetErrorDetail(result.status())->field, "concurrency");
  EXPECT_EQ(GetErrorDetail(Check(Fault::kNone, {.axes = {}, .repeats = -1}).status())->field,
            "repeats");
}

TEST(CheckInvariance, StopsAtTheBoundOnItsWork) {
  const auto registry = test::MakeProbeRegistry();
  test::CheckEngine engine(*registry);
  EngineRunner runner(engine.engine(), {.backend = "cpu"});
  const auto context = test::NewContext(1 << 16);
  const auto result =
      CheckInvariance(*registry, runner, test::ProbeCall(*registry, 37, Fault::kNone),
                      {.axes = {InvarianceAxis::kRepeat}, .repeats = 1000}, *context);
  EXPECT_EQ(GetErrorDetail(result.status())->reason, Reason::kLimitExceeded);
  EXPECT_GE(context->work_bytes(), 1 << 16);
}

TEST(CheckInvariance, EndsWithItsCaller) {
  const auto registry = test::MakeProbeRegistry();
  test::CheckEngine engine(*registry);
  EngineRunner inner(engine.engine(), {.backend = "cpu"});
  // The caller goes during the tenth call.
  class Leaving final : public CallRunner {
   public:
    explicit Leaving(CallRunner& inner) : inner_(inner) {}
    absl::StatusOr<MethodRun> Run(const ValueCall& call, std::byte fill,
                                  CheckContext& context) override {
      ++runs;
      return inner_.Run(call, fill, context);
    }
    int runs = 0;

   private:
    CallRunner& inner_;
  } runner(inner);
  const auto context = std::make_unique<CheckContext>(
      Interrupt{.cancelled = [&runner] { return runner.runs >= 10; }}, test::kMuchWork);
  const auto result =
      CheckInvariance(*registry, runner, test::ProbeCall(*registry, 37, Fault::kNone),
                      {.axes = {InvarianceAxis::kRepeat}, .repeats = 1000}, *context);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled) << result.status();
  EXPECT_EQ(runner.runs, 10);
}

}  // namespace
}  // namespace rlk::server
