// Verification and digests of calls: through the engine, on a device that the test controls.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/core/status.h"
#include "server/engine/engine.h"
#include "tests/unit/engine/engine_harness.h"

namespace rlk::server {
namespace {

using test::EngineHarness;
using test::Execute;
using test::FakePoint;
using test::OutputValues;
using test::Pending;
using test::ReasonOf;
using test::Submit;

class EngineVerification : public testing::Test, protected EngineHarness {};

TEST_F(EngineVerification, RepeatComparesTwoRuns) {
  Start();
  Call call = Scale(1, 100);
  call.options.verification = Verification::kRepeat;
  call.options.digest_tensors = true;
  const auto result = Execute(*engine, std::move(call));
  ASSERT_TRUE(result.ok()) << result.status();
  const VerificationReport& report = result->report.verification;
  EXPECT_EQ(report.kind, Verification::kRepeat);
  EXPECT_TRUE(report.passed);
  ASSERT_EQ(report.outputs.size(), 1u);
  EXPECT_EQ(report.outputs[0].name, "y");
  EXPECT_EQ(report.outputs[0].compared, 100);
  EXPECT_EQ(report.outputs[0].mismatched, 0);
  EXPECT_EQ(result->outputs.size(), 1u);
  EXPECT_EQ(control->arrivals(FakePoint::kLaunch), 2);
}

TEST_F(EngineVerification, RepeatFindsOneChangedBit) {
  Start();
  for (int64_t launch : {1, 2}) {
    control->FlipBitAt(control->arrivals(FakePoint::kLaunch) + launch);
    Call call = Scale(1, 100);
    call.options.verification = Verification::kRepeat;
    const auto result = Execute(*engine, std::move(call));
    EXPECT_EQ(result.status().code(), absl::StatusCode::kDataLoss);
    const auto detail = GetErrorDetail(result.status());
    EXPECT_EQ(detail->reason, Reason::kVerificationFailed);
    EXPECT_EQ(detail->field, "y");
    EXPECT_EQ(detail->value, "1 of 100 elements differ, the first at index 50");
  }
  EXPECT_EQ(observer.verified, 2);
  EXPECT_EQ(observer.verify_failed, 2);
}

TEST_F(EngineVerification, ReferenceJudgesTheDevicesResult) {
  Start();
  Call call = Scale(1, 100);
  call.inputs[0].data = test::ToBytes(std::vector<float>(100, 0.5f), 3, /*misaligned=*/true);
  call.options.verification = Verification::kReference;
  const auto result = Execute(*engine, std::move(call));
  ASSERT_TRUE(result.ok()) << result.status();
  const VerificationReport& report = result->report.verification;
  EXPECT_EQ(report.kind, Verification::kReference);
  EXPECT_TRUE(report.passed);
  EXPECT_EQ(report.outputs[0].compared, 100);
  EXPECT_EQ(report.outputs[0].mismatched, 0);
  EXPECT_EQ(report.outputs[0].atol, 1e-5);
  EXPECT_EQ(report.outputs[0].rtol, 1e-5);
}

TEST_F(EngineVerification, ReferenceReportsAWrongResultWithoutFailingTheCall) {
  Start();
  control->FlipBitAt(1);  // byte 200: the last mantissa bit of element 50
  Call call = Scale(1, 100);
  call.inputs[0].data = test::ToBytes(std::vector<float>(100, 0.0f));
  call.attributes = {{.spec = 0, .number = 1}};
  call.options.verification = Verification::kReference;
  auto result = Execute(*engine, std::move(call));
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->report.verification.passed);  // one unit in the last place is in tolerance

  // A kernel that is wrong by 5 %: the call asks for 1.05 x, the golden of a factor of 1.
  MethodDecl decl = registry->Find("toy.scale")->decl;
  decl.golden = [](const KernelArgs& args) {
    for (int64_t i = 0; i < args.Input("x").elements(); ++i) {
      args.Output("y").as<double>()[i] = args.Input("x").as<float>()[i];
    }
    return absl::OkStatus();
  };
  const Method planted{decl, registry->Find("toy.scale")->signature};
  call = Scale(1, 100);
  call.method = &planted;
  call.attributes = {{.spec = 0, .number = 1.05}};
  call.options.verification = Verification::kReference;
  result = Execute(*engine, std::move(call));
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result->report.verification.passed);
  EXPECT_EQ(result->report.verification.outputs[0].mismatched, 100);
  EXPECT_NEAR(result->report.verification.outputs[0].max_rel_error, 0.05, 1e-6);
  EXPECT_EQ(observer.verified, 2);
  EXPECT_EQ(observer.verify_failed, 1);
}

// A method's check of values sees the received bytes before anything is staged.
TEST_F(EngineVerification, ValuesAreCheckedBeforeTheLaunch) {
  Start();
  MethodDecl decl = registry->Find("toy.scale")->decl;
  decl.checked_inputs = {"x"};
  decl.validate_values = [](const KernelArgs& args) {
    for (int64_t i = 0; i < args.Input("x").elements(); ++i) {
      if (args.Input("x").as<float>()[i] <= 10) continue;
      return InvalidArgument(Reason::kValueOutOfRange, "x", std::to_string(i), "<= 10", "too big");
    }
    return absl::OkStatus();
  };
  const Method checked{decl, registry->Find("toy.scale")->signature};
  Call call = Scale(1, 10);
  call.method = &checked;
  EXPECT_TRUE(Execute(*engine, std::move(call)).ok());
  const int launches = control->arrivals(FakePoint::kBegin);
  call = Scale(1, 11);
  call.method = &checked;
  const auto refused = Execute(*engine, std::move(call));
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kValueOutOfRange);
  EXPECT_EQ(GetErrorDetail(refused.status())->value, "10");
  EXPECT_EQ(control->arrivals(FakePoint::kBegin), launches);
}

// A choice that a call leaves to its contract is made before the launch, and reported.
TEST_F(EngineVerification, ReportsTheValueThatTheContractChose) {
  Start();
  MethodDecl decl = registry->Find("toy.rich")->decl;
  decl.resolved_attribute = "count";
  decl.resolve = [](const KernelArgs& args) {
    return args.I64("count") == 8 ? args.Input("a").elements() : args.I64("count");
  };
  const Method chosen{decl, registry->Find("toy.rich")->signature};
  for (const auto& [given, effective] : {std::pair{8, 4}, std::pair{16, 16}}) {
    Call call;
    call.method = &chosen;
    call.inputs = {test::ZeroTensor(test::Rich::kA, DType::kF32, {4})};
    call.attributes = {{.spec = test::Rich::kCount, .integer = given},
                       {.spec = test::Rich::kRequired, .number = 1}};
    const auto result = Execute(*engine, std::move(call));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->report.attributes[test::Rich::kCount].integer, effective);
    EXPECT_EQ(result->report.attributes[test::Rich::kRequired].number, 1);
  }
}

TEST_F(EngineVerification, ReferenceIsBoundedAndSometimesNotThere) {
  options.limits.reference_elements_max = 100;
  Start();
  Call call = Scale(1, 101);
  call.options.verification = Verification::kReference;
  auto refused = Execute(*engine, std::move(call));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kLimitExceeded);
  EXPECT_EQ(GetErrorDetail(refused.status())->retry_after_ms, 0);

  call = Call();
  call.method = registry->Find("toy.rich");  // without a golden
  call.inputs = {test::ZeroTensor(test::Rich::kA, DType::kF32, {4})};
  call.attributes = {{.spec = test::Rich::kRequired, .number = 1}};
  call.options.verification = Verification::kReference;
  refused = Execute(*engine, std::move(call));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kVerificationUnavailable);
  EXPECT_EQ(control->arrivals(FakePoint::kBegin), 0);
}

TEST_F(EngineVerification, ReferenceHoldsUpNoOtherCallAndIsBounded) {
  options.reference_calls_max = 2;
  Start();
  // A golden that waits for the test.
  static std::mutex mutex;
  mutex.lock();
  MethodDecl decl = registry->Find("toy.scale")->decl;
  decl.golden = [](const KernelArgs& args) {
    const std::lock_guard<std::mutex> lock(mutex);
    for (int64_t i = 0; i < args.Input("x").elements(); ++i) {
      args.Output("y").as<double>()[i] = 2.0 * args.Input("x").as<float>()[i];
    }
    return absl::OkStatus();
  };
  const Method slow{decl, registry->Find("toy.scale")->signature};
  std::vector<Pending> pending;
  for (int i = 0; i < 2; ++i) {
    Call call = Scale();
    call.method = &slow;
    call.options.verification = Verification::kReference;
    pending.push_back(Submit(*engine, std::move(call)));
  }
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(Execute(*engine, Scale()).ok());
  Call call = Scale();
  call.options.verification = Verification::kReference;
  const auto refused = Execute(*engine, std::move(call));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kQueueFull);
  for (const Pending& one : pending) EXPECT_FALSE(one.done());
  mutex.unlock();
  for (const Pending& one : pending) EXPECT_TRUE(one.Wait()->report.verification.passed);
  call = Scale();
  call.options.verification = Verification::kReference;
  EXPECT_TRUE(Execute(*engine, std::move(call)).ok());
}

TEST_F(EngineVerification, DigestsAreThoseOfTheBytes) {
  Start();
  for (const char* backend : {"cuda", "cpu"}) {
    for (int64_t columns : {1, 4}) {
      std::vector<float> values(12);
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) - 5;
      const Dims shape{12 / columns, columns};
      Call call;
      call.method = registry->Find("toy.scale");
      call.inputs = {test::Tensor(0, DType::kF32, shape, values, 3)};
      call.options.backend = backend;
      call.options.digest_tensors = true;
      call.options.digest_rows = true;
      const auto result = Execute(*engine, std::move(call));
      ASSERT_TRUE(result.ok()) << result.status();
      const auto expect = [&](const NamedDigest& digest, const std::string& name,
                              const std::vector<float>& data) {
        const TensorView view{DType::kF32, shape, ContiguousStrides(shape), data.data()};
        EXPECT_EQ(digest.name, name);
        EXPECT_EQ(digest.tensor, ComputeDigest(view));
        EXPECT_EQ(digest.rows, ComputeRowDigests(view));
        EXPECT_EQ(digest.rows.size(), static_cast<size_t>(shape[0]));
      };
      ASSERT_EQ(result->report.input_digests.size(), 1u);
      ASSERT_EQ(result->report.output_digests.size(), 1u);
      expect(result->report.input_digests[0], "x", values);
      for (float& value : values) value *= 2;
      expect(result->report.output_digests[0], "y", values);
    }
  }
}

TEST_F(EngineVerification, RowDigestsAloneNeedNoTensorDigest) {
  Start();
  Call call = Scale();
  call.options.digest_rows = true;
  const auto result = Execute(*engine, std::move(call));
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result->report.input_digests[0].tensor.has_value());
  EXPECT_EQ(result->report.input_digests[0].rows.size(), 1u);
  EXPECT_EQ(result->report.output_digests[0].rows.size(), 1u);
}

}  // namespace
}  // namespace rlk::server
