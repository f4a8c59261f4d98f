// The function set and the fast forms, over all their inputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

#include "kernels/arith/function_loops.h"
#include "kernels/arith/known_answer.h"
#include "kernels/core/cpu_features.h"
#include "kernels/core/fp_environment.h"
#include "kernels/core/parallel.h"
#include "tests/gpu/function_kernels.h"
#include "tests/support/golden_json.h"

namespace rlk::gpu_test {
namespace {

uint64_t CpuFunctionDigest(arith::Function function) {
  const arith::FunctionLoops& loops = arith::GetFunctionLoops(AvailableIsas().back());
  ThreadPool pool(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  std::atomic<uint64_t> sum{0};
  pool.ParallelFor(int64_t{1} << 32, int64_t{1} << 22, [&](int64_t begin, int64_t end) {
    const FpEnvironment environment;
    sum += loops.digest[static_cast<size_t>(function)](static_cast<uint64_t>(begin),
                                                       static_cast<uint64_t>(end));
  });
  return sum;
}

class FunctionDigest : public testing::TestWithParam<int> {};

TEST_P(FunctionDigest, DeviceEqualsCpuForAllInputs) {
  const auto function = static_cast<arith::Function>(GetParam());
  EXPECT_EQ(DeviceFunctionDigest(function), CpuFunctionDigest(function));
}

TEST_P(FunctionDigest, DeviceEqualsStoredDigest) {
  const nlohmann::json golden = test::LoadGolden("digests_functions.json");
  ASSERT_TRUE(golden.contains("digests"));
  const std::string stored = golden["digests"][arith::kFunctionNames[GetParam()]].at("all");
  EXPECT_EQ(DeviceFunctionDigest(static_cast<arith::Function>(GetParam())), test::Hex64(stored));
}

INSTANTIATE_TEST_SUITE_P(F32V1, FunctionDigest, testing::Range(0, arith::kFunctionCount),
                         [](const auto& info) { return arith::kFunctionNames[info.param]; });

TEST(KnownAnswers, PassOnTheDevice) {
  const auto passed = arith::CudaKnownAnswers(0);
  ASSERT_TRUE(passed.ok()) << passed.status();
  EXPECT_EQ(*passed, arith::kKnownAnswerCount);
}

TEST(FastForms, ReciprocalFromOneToTwo) { EXPECT_EQ(CountWrongReciprocals(), 0u); }

class UniformDivision : public testing::TestWithParam<float> {};

TEST_P(UniformDivision, AllSignificands) { EXPECT_EQ(CountWrongQuotients(GetParam()), 0u); }

TEST_P(UniformDivision, WholeRange) { EXPECT_EQ(CountWrongQuotientsInRange(GetParam(), 1), 0u); }

INSTANTIATE_TEST_SUITE_P(Caps, UniformDivision,
                         testing::Values(20.0f, 30.0f, 50.0f, 7.3f, 0.1f, 1.0f, 15.0f, 3.0f,
                                         0x1.fffffep0f, 0x1.000002p0f, 0x1.555556p3f, 0x1p-20f,
                                         0x1.fffffep-20f, 0x1p20f, 0x1.fffffep19f));

// 8,192 caps with drawn significands, each against all significands of x: 1.4e11 quotients.
TEST(FastForms, UniformDivisionByRandomCaps) {
  EXPECT_EQ(CountWrongQuotientsOfRandomCaps(8192, 0x5eed), 0u);
}

}  // namespace
}  // namespace rlk::gpu_test
