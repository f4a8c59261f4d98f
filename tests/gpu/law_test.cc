// The law `t25x16` against the tensor core, and the device's compilation of it against the host's.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/core/fp_environment.h"
#include "kernels/core/parallel.h"
#include "tests/gpu/device_memory.h"
#include "tests/gpu/law_kernels.h"

namespace rlk::gpu_test {
namespace {

using arith::StepData;

constexpr int64_t kTileOutputs = arith::kStepTileRows * arith::kStepTileColumns;

std::string DataName(int data) { return arith::kStepDataNames[data]; }

// The law is that of compute capability 9.0, and `wgmma` exists there alone.
bool HasTheLaw() {
  int device = 0, major = 0, minor = 0;
  RLK_GPU_CHECK(cudaGetDevice(&device));
  RLK_GPU_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  RLK_GPU_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return major == 9 && minor == 0;
}

template <typename Param>
class OnHopper : public testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    if (!HasTheLaw()) GTEST_SKIP() << "needs compute capability 9.0";
  }
};

class StepLaw : public OnHopper<int> {
 protected:
  StepData data() const { return static_cast<StepData>(GetParam()); }
};

// Over the fourteen kinds: 1.0e10 outputs, each by four instructions.
TEST_P(StepLaw, HoldsForEveryInstruction) {
  constexpr int64_t kTiles = 1'400'000;
  const LawCounts counts = CompareSteps(data(), 0, kTiles);
  EXPECT_EQ(counts.outputs, static_cast<unsigned long long>(kTiles * kTileOutputs));
  EXPECT_EQ(counts.mma, 0u) << "mma.sync";
  EXPECT_EQ(counts.swapped, 0u) << "mma.sync, roles exchanged";
  EXPECT_EQ(counts.shared, 0u) << "wgmma, A in shared memory";
  EXPECT_EQ(counts.registers, 0u) << "wgmma, A in registers";
  RecordProperty("outputs", std::to_string(counts.outputs));
  std::printf("    %s: %llu outputs, %llu zero, %llu subnormal, %llu infinite or NaN\n",
              DataName(GetParam()).c_str(), counts.outputs, counts.zeros, counts.subnormals,
              counts.specials);
  // The data are what their names say.
  switch (data()) {
    case StepData::kSubnormalResults:
    case StepData::kTinyProductsZeroC:
      EXPECT_GT(counts.subnormals, counts.outputs / 10);
      break;
    case StepData::kCancellation:
      EXPECT_GT(counts.zeros, counts.outputs / 4);
      EXPECT_LT(counts.zeros, counts.outputs * 3 / 4);
      break;
    case StepData::kOverflow:
    case StepData::kSpecials:
      EXPECT_GT(counts.specials, counts.outputs / 10);
      break;
    default:
      EXPECT_LT(counts.specials, counts.outputs);
  }
}

// 1.0e7 outputs of the tensor core, computed again by the host's compilation of the law.
TEST_P(StepLaw, HostGivesTheBitsOfTheTensorCore) {
  constexpr int64_t kTiles = 1400;
  constexpr uint64_t kFirst = 5'000'000;
  const std::vector<uint64_t> device = TileDigests(data(), kFirst, kTiles);
  std::vector<uint64_t> host(device.size());
  ThreadPool pool(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  pool.ParallelFor(kTiles, 1, [&](int64_t begin, int64_t end) {
    const FpEnvironment environment;
    for (int64_t tile = begin; tile < end; ++tile) {
      host[static_cast<size_t>(tile)] =
          arith::StepTileDigest(data(), kFirst + static_cast<uint64_t>(tile));
    }
  });
  EXPECT_EQ(host, device);
}

INSTANTIATE_TEST_SUITE_P(Data, StepLaw, testing::Range(0, arith::kStepDataCount),
                         [](const auto& info) { return DataName(info.param); });

// The same at every width of a tile, 2.8e6 to 4.6e7 outputs a kind of data.
class StepLawColumns : public OnHopper<std::tuple<int, int>> {};

TEST_P(StepLawColumns, HoldsFromAnAccumulatorAndFromZero) {
  const auto [columns, data] = GetParam();
  constexpr int64_t kTiles = 2816;
  const LawCounts counts = CompareColumns(columns, static_cast<StepData>(data), 9'000'000, kTiles);
  EXPECT_EQ(counts.outputs, static_cast<unsigned long long>(kTiles * 64 * columns));
  EXPECT_EQ(counts.shared, 0u) << "A in shared memory";
  EXPECT_EQ(counts.registers, 0u) << "A in registers";
  EXPECT_EQ(counts.from_zero, 0u) << "from zero, over NaN";
}

INSTANTIATE_TEST_SUITE_P(Widths, StepLawColumns,
                         testing::Combine(testing::Values(16, 32, 64, 128, 192, 256),
                                          testing::Range(0, arith::kStepDataCount)),
                         [](const auto& info) {
                           return absl::StrCat("N", std::get<0>(info.param),
                                               DataName(std::get<1>(info.param)));
                         });

struct NamedChain {
  const char* name;
  ChainShape shape;
  int64_t tiles;
};

// 24,192 = 189 * 128 products.
const NamedChain kChains[] = {{"K24192", {189, 8, false}, 528},
                              {"TailOfZeroSteps", {22, 3, false}, 2640},
                              {"SplitGradientWithZeroParts", {21, 8, true}, 2640}};

class StepLawChain : public OnHopper<std::tuple<int, int>> {};

TEST_P(StepLawChain, HoldsAlongTheReduction) {
  const NamedChain& chain = kChains[std::get<0>(GetParam())];
  const auto data = static_cast<StepData>(std::get<1>(GetParam()));
  const ChainCounts counts = CompareChains(data, chain.shape, 0, chain.tiles);
  EXPECT_EQ(counts.comparisons,
            static_cast<unsigned long long>(chain.tiles * kTileOutputs * chain.shape.chunks));
  EXPECT_EQ(counts.mma, 0u) << "mma.sync, chained";
  EXPECT_EQ(counts.shared, 0u) << "wgmma, A in shared memory, chained";
  EXPECT_EQ(counts.registers, 0u) << "wgmma, A in registers, chained";
  EXPECT_EQ(counts.promoted, 0u) << "eight steps chained, then added";
  EXPECT_EQ(counts.single_mma, 0u) << "mma.sync, every step from zero";
  EXPECT_EQ(counts.single_wgmma, 0u) << "wgmma, every step from zero";
}

std::vector<std::tuple<int, int>> ChainCases() {
  std::vector<std::tuple<int, int>> cases;
  for (int chain = 0; chain < 3; ++chain) {
    for (StepData data :
         {StepData::kNormals, StepData::kBinades24, StepData::kBinades120,
          StepData::kSubnormalResults, StepData::kHalfZeros, StepData::kSubnormalTimesLarge,
          StepData::kCancellation, StepData::kSpecials, StepData::kAroundTheCut,
          StepData::kZerosBesideTiny}) {
      // Zero parts change nothing beside finite weights; beside an infinity they make a NaN.
      if (kChains[chain].shape.zero_parts && data == StepData::kSpecials) continue;
      cases.emplace_back(chain, static_cast<int>(data));
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Chains, StepLawChain, testing::ValuesIn(ChainCases()),
                         [](const auto& info) {
                           return absl::StrCat(kChains[std::get<0>(info.param)].name,
                                               DataName(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace rlk::gpu_test
