// The parts of `rlk bench load`: the histogram's error bound, the mix, and both loops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

#include "client/cli/latency_histogram.h"
#include "client/cli/load_kinds.h"
#include "client/cli/load_run.h"
#include "kernels/core/counter_random.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr int64_t kLargest = LatencyHistogram::kLargest;

int64_t NearestRank(std::vector<int64_t> values, double fraction) {
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<size_t>(std::ceil(fraction * static_cast<double>(values.size())));
  return values[std::max<size_t>(rank, 1) - 1];
}

TEST(LatencyHistogramTest, OneValueReadsBackAtMostOnePartIn128Above) {
  std::vector<int64_t> values = {0, 1, 127, 128, 255, 256, 257, 511, 512, 513, kLargest};
  for (int bit = 1; bit < 42; ++bit) {
    for (const int64_t offset : {-1, 0, 1}) values.push_back((int64_t{1} << bit) + offset);
  }
  for (int64_t value = 1; value < kLargest / 2; value += value / 5 + 1) values.push_back(value);
  for (const int64_t value : values) {
    LatencyHistogram histogram;
    histogram.Add(value);
    // Hides max(), which would make it exact.
    histogram.Add(kLargest);
    const int64_t read = histogram.Percentile(0.5);
    EXPECT_GE(read, value);
    EXPECT_LE(read - value, value / 128) << value;
  }
}

TEST(LatencyHistogramTest, PercentilesAreWithinTheBoundOfTheExactOnes) {
  std::vector<int64_t> values;
  LatencyHistogram parts[3], all;
  for (uint64_t i = 0; i < 20'000; ++i) {
    // Log-uniform between 1 and 2^36.
    const double exponent = static_cast<double>(RandomBits(7, i) >> 11) * 0x1p-53 * 36;
    values.push_back(static_cast<int64_t>(std::exp2(exponent)));
    parts[i % 3].Add(values.back());
  }
  for (const LatencyHistogram& part : parts) all.Merge(part);
  EXPECT_EQ(all.count(), 20'000);
  EXPECT_EQ(all.min(), *std::min_element(values.begin(), values.end()));
  EXPECT_EQ(all.max(), *std::max_element(values.begin(), values.end()));
  for (const double fraction : {0.0, 0.001, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0}) {
    const int64_t exact = NearestRank(values, fraction);
    EXPECT_GE(all.Percentile(fraction), exact) << fraction;
    EXPECT_LE(all.Percentile(fraction), exact + exact / 128) << fraction;
  }
}

TEST(LatencyHistogramTest, HoldsWhatIsEmptyOrOutOfRange) {
  LatencyHistogram histogram;
  EXPECT_EQ(histogram.Percentile(0.5), 0);
  EXPECT_EQ(histogram.min(), 0);
  EXPECT_EQ(histogram.mean(), 0);
  histogram.Add(-5);
  EXPECT_EQ(histogram.Percentile(1), 0);
  histogram.Add(kLargest + 10);
  EXPECT_EQ(histogram.Percentile(1), kLargest);
  EXPECT_EQ(histogram.count(), 2);
}

TEST(LoadMixTest, TakesNamesAndWeights) {
  const auto mix = ParseMix("small=3,rms_norm");
  ASSERT_TRUE(mix.ok()) << mix.status();
  ASSERT_EQ(mix->size(), 2u);
  EXPECT_STREQ((*mix)[0].kind->name, "small");
  EXPECT_EQ((*mix)[0].weight, 3);
  EXPECT_STREQ((*mix)[1].kind->name, "rms_norm");
  EXPECT_EQ((*mix)[1].weight, 1);
}

TEST(LoadMixTest, RefusesWhatIsNone) {
  for (const char* text : {"", "large", "small,", "small=0", "small=1001", "small=x",
                           "small=", "small,small=2", "=3"}) {
    const auto mix = ParseMix(text);
    ASSERT_FALSE(mix.ok()) << text;
    const auto detail = GetErrorDetail(mix.status());
    ASSERT_TRUE(detail.has_value()) << text;
    EXPECT_EQ(detail->field, "--mix");
    EXPECT_THAT(detail->allowed, testing::HasSubstr("rms_norm")) << text;
  }
}

TEST(LoadMixTest, ChoosesByWeightAndAlikeForASeed) {
  const auto mix = ParseMix("small=3,rms_norm=1");
  ASSERT_TRUE(mix.ok());
  constexpr int64_t kCalls = 40'000;
  int64_t first = 0;
  for (int64_t i = 0; i < kCalls; ++i) {
    const size_t part = PartOfCall(*mix, 5, i);
    EXPECT_EQ(part, PartOfCall(*mix, 5, i));
    first += part == 0;
  }
  // Ten standard deviations of 40000 throws.
  EXPECT_NEAR(static_cast<double>(first), 0.75 * kCalls, 870);
}

LoadPlan PlanOf(double rate, bool poisson = false) {
  LoadPlan plan;
  plan.rate = rate;
  plan.poisson = poisson;
  plan.mix = {{&LoadKinds().front(), 1}};
  return plan;
}

TEST(LoadRunTest, DueTimesAreThoseOfTheRate) {
  EXPECT_TRUE(DueTimes(PlanOf(0), {0, 10}).empty());
  const std::vector<nanoseconds> uniform = DueTimes(PlanOf(1000), {0, 4});
  EXPECT_THAT(uniform, testing::ElementsAre(milliseconds(0), milliseconds(1), milliseconds(2),
                                            milliseconds(3)));
  const std::vector<nanoseconds> poisson = DueTimes(PlanOf(1000, true), {0, 20'001});
  EXPECT_TRUE(std::is_sorted(poisson.begin(), poisson.end()));
  // The mean of 20000 exponential gaps of 1 ms; ten standard deviations.
  EXPECT_NEAR(static_cast<double>(poisson.back().count()), 20e9, 20e9 * 10 / std::sqrt(20'000.0));
  EXPECT_EQ(poisson, DueTimes(PlanOf(1000, true), {0, 20'001}));
}

// The turns of a block are the block: every call once, in order, and due at the same gaps.
TEST(LoadRunTest, TurnsMakeTheCallsOfTheBlock) {
  for (const auto& [calls, turns] :
       {std::pair<int64_t, int64_t>{10, 1}, {10, 3}, {7, 7}, {100, 9}}) {
    std::vector<nanoseconds> gaps, whole = DueTimes(PlanOf(1000, true), {0, calls});
    int64_t next = 0, least = calls, most = 0;
    for (int64_t turn = 0; turn < turns; ++turn) {
      const CallRange range = TurnOf(calls, turn, turns);
      EXPECT_EQ(range.first, next);
      next += range.count;
      least = std::min(least, range.count);
      most = std::max(most, range.count);
      const std::vector<nanoseconds> due = DueTimes(PlanOf(1000, true), range);
      ASSERT_EQ(due.size(), static_cast<size_t>(range.count));
      for (size_t i = 1; i < due.size(); ++i) {
        const size_t at = static_cast<size_t>(range.first) + i;
        // Each sum of gaps is cut to whole nanoseconds.
        EXPECT_NEAR(static_cast<double>((due[i] - due[i - 1]).count()),
                    static_cast<double>((whole[at] - whole[at - 1]).count()), 1);
      }
    }
    EXPECT_EQ(next, calls);
    EXPECT_LE(most - least, 1);
  }
}

TEST(LoadRunTest, TurnsAddUpToTheirBlock) {
  LoadPlan plan = PlanOf(0);
  plan.mix = *ParseMix("small=3,rms_norm=1");
  std::atomic<int64_t> calls[2] = {};
  const ClientCalls client = {[&]() -> absl::Status {
                                ++calls[0];
                                return absl::OkStatus();
                              },
                              [&]() -> absl::Status {
                                ++calls[1];
                                return absl::UnavailableError("down");
                              }};
  const LoadBlock whole = RunLoad(plan, {0, 400}, {client, client});
  const int64_t failed = calls[1].exchange(0);
  calls[0] = 0;
  LoadBlock merged;
  double seconds = 0;
  for (int64_t turn = 0; turn < 7; ++turn) {
    const LoadBlock part = RunLoad(plan, TurnOf(400, turn, 7), {client, client});
    seconds += part.seconds;
    merged.Merge(part);
  }
  EXPECT_EQ(calls[1], failed);
  EXPECT_EQ(calls[0] + calls[1], 400);
  EXPECT_EQ(merged.seconds, seconds);
  EXPECT_EQ(merged.first_error, "UNAVAILABLE: down");
  EXPECT_EQ(merged.all.errors, whole.all.errors);
  EXPECT_EQ(merged.all.latency.count(), whole.all.latency.count());
  ASSERT_EQ(merged.parts.size(), 2u);
  for (size_t part = 0; part < 2; ++part) {
    EXPECT_EQ(merged.parts[part].latency.count(), whole.parts[part].latency.count());
    EXPECT_EQ(merged.parts[part].errors, whole.parts[part].errors);
  }
}

TEST(LoadRunTest, ClosedLoopMakesEachCallOnceAndCountsErrors) {
  std::atomic<int64_t> calls = 0;
  const ClientCalls client = {[&calls]() -> absl::Status {
    return calls++ % 4 == 3 ? absl::UnavailableError("down") : absl::OkStatus();
  }};
  const LoadBlock block = RunLoad(PlanOf(0), {0, 1000}, {client, client, client});
  EXPECT_EQ(calls, 1000);
  EXPECT_EQ(block.all.latency.count(), 750);
  EXPECT_THAT(block.all.errors, testing::ElementsAre(std::pair("UNAVAILABLE", 250)));
  EXPECT_EQ(block.first_error, "UNAVAILABLE: down");
  EXPECT_EQ(block.behind.count(), 0);
  EXPECT_GT(block.CallsPerSecond(), 0);
}

// A server that stands still for a while and is fast again: the calls that were due meanwhile
// waited for it, though none of them had been sent.
TEST(LoadRunTest, OpenLoopSeesTheCallsThatAStallKeptBack) {
  constexpr auto kStall = milliseconds(50);
  bool first = true;
  const ClientCalls client = {[&] {
    if (std::exchange(first, false)) std::this_thread::sleep_for(kStall);
    return absl::OkStatus();
  }};
  const LoadBlock block = RunLoad(PlanOf(1000), {0, 50}, {client});
  EXPECT_EQ(block.all.latency.count(), 50);
  EXPECT_EQ(block.behind.count(), 50);
  // Call i was due at i ms and was not sent before 50 ms: the slower half took 25 ms or more.
  EXPECT_GE(block.all.latency.Percentile(0.51), nanoseconds(milliseconds(24)).count());
  EXPECT_GE(block.behind.Percentile(0.51), nanoseconds(milliseconds(24)).count());

  first = true;
  const LoadBlock closed = RunLoad(PlanOf(0), {0, 50}, {client});
  // What a closed loop says of the same server: one slow call.
  EXPECT_GE(closed.all.latency.max(), nanoseconds(kStall).count());
}

}  // namespace
}  // namespace rlk::cli
