// Buckets by arithmetic equal buckets by search, and nothing is lost between threads.
#include "server/metrics/histogram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>
#include <vector>

namespace rlk::server {
namespace {

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

const std::vector<Buckets> kShapes = {
    {.first = 50'000, .log2_factor = 1, .count = 19, .units = 1e9},
    {.first = 1'000, .log2_factor = 1, .count = 24, .units = 1e9},
    {.first = 64, .log2_factor = 2, .count = 14},
    {.first = 1, .log2_factor = 2, .count = 12},
    {.first = 3, .log2_factor = 3, .count = 4},
    {.first = 7, .log2_factor = 1, .count = 1},
};

// The first bucket whose bound is not below the value, bound by bound.
size_t Search(const Buckets& buckets, int64_t value) {
  int64_t bound = buckets.first;
  for (int i = 0; i < buckets.count; ++i, bound <<= buckets.log2_factor) {
    if (value <= bound) return static_cast<size_t>(i);
  }
  return static_cast<size_t>(buckets.count);
}

TEST(HistogramTest, BucketIsThatOfASearch) {
  for (const Buckets& buckets : kShapes) {
    const Histogram histogram(buckets);
    std::vector<int64_t> values = {-kLargest, -1, 0, 1, 2, 3, kLargest - 1, kLargest};
    int64_t bound = buckets.first;
    for (int i = 0; i < buckets.count; ++i, bound <<= buckets.log2_factor) {
      for (const int64_t offset : {-1, 0, 1}) values.push_back(bound + offset);
    }
    for (int64_t value = 1; value < kLargest / 5; value += value / 3 + 1) values.push_back(value);
    for (const int64_t value : values) {
      EXPECT_EQ(histogram.Bucket(value), Search(buckets, value))
          << value << " from " << buckets.first << " on";
    }
  }
}

TEST(HistogramTest, SeriesAreCumulativeAndInBaseUnits) {
  HistogramFamily family("seconds", "Help.", {.first = 50'000, .count = 3, .units = 1e9});
  Histogram* const histogram = family.Add({{"b", "2"}, {"a", "1"}});
  EXPECT_EQ(family.Add({{"a", "1"}, {"b", "2"}}), histogram);
  for (const int64_t ns : {1, 50'000, 50'001, 200'000, 200'001}) histogram->Observe(ns);
  const std::vector<prometheus::MetricFamily> collected = family.Collect();
  ASSERT_EQ(collected.size(), 1u);
  EXPECT_EQ(collected[0].name, "seconds");
  EXPECT_EQ(collected[0].help, "Help.");
  EXPECT_EQ(collected[0].type, prometheus::MetricType::Histogram);
  ASSERT_EQ(collected[0].metric.size(), 1u);
  const prometheus::ClientMetric& metric = collected[0].metric[0];
  using Label = prometheus::ClientMetric::Label;
  EXPECT_THAT(metric.label, testing::ElementsAre(Label{"a", "1"}, Label{"b", "2"}));
  std::vector<double> bounds;
  std::vector<uint64_t> counts;
  for (const auto& bucket : metric.histogram.bucket) {
    bounds.push_back(bucket.upper_bound);
    counts.push_back(bucket.cumulative_count);
  }
  // Exactly these: their texts are labels.
  EXPECT_THAT(bounds, testing::ElementsAre(5e-05, 1e-04, 2e-04, INFINITY));
  EXPECT_THAT(counts, testing::ElementsAre(2, 3, 4, 5));
  EXPECT_EQ(metric.histogram.sample_count, 5u);
  EXPECT_DOUBLE_EQ(metric.histogram.sample_sum, 500'003e-9);
}

TEST(HistogramTest, LosesNothingBetweenThreads) {
  constexpr int kThreads = 4;
  constexpr int64_t kEach = 20'000;
  Histogram histogram({.first = 1, .log2_factor = 1, .count = 16});
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        for (int64_t value = 1; value <= kEach; ++value) histogram.Observe(value);
      });
    }
    threads.emplace_back([&] {
      uint64_t last = 0;
      while (last < kThreads * kEach) {
        const auto seen = histogram.Collect();
        EXPECT_GE(seen.sample_count, last);
        EXPECT_EQ(seen.sample_count, seen.bucket.back().cumulative_count);
        last = seen.sample_count;
      }
    });
  }
  EXPECT_DOUBLE_EQ(histogram.Collect().sample_sum, kThreads * (kEach * (kEach + 1) / 2.0));
}

}  // namespace
}  // namespace rlk::server
