// Histograms that a scrape cannot hold up: prometheus-cpp's own takes a lock for every observation
// and looks for the bucket from the first one on. Internal to this folder.
#pragma once

#include <prometheus/client_metric.h>
#include <prometheus/collectable.h>
#include <prometheus/labels.h>
#include <prometheus/metric_family.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rlk::server {

// Upper bounds first, first * factor, first * factor^2, ... in the unit that is observed; the
// series show them, and the sum, divided by `units`: nanoseconds are shown as seconds with 1e9.
struct Buckets {
  int64_t first = 1;
  int log2_factor = 1;
  int count = 1;
  double units = 1;
};

// Observe may be called from any number of threads; it takes no lock and allocates nothing.
class Histogram {
 public:
  static constexpr int kCountMax = 32;

  explicit Histogram(const Buckets& buckets) : buckets_(buckets) {}

  void Observe(int64_t value) {
    counts_[Bucket(value)].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(static_cast<double>(value), std::memory_order_relaxed);
  }

  // The bucket whose upper bound is the first that is not below `value`; buckets().count where
  // there is none.
  size_t Bucket(int64_t value) const {
    // value <= first * 2^k is (value - 1) / first < 2^k.
    const auto above = static_cast<uint64_t>(std::max<int64_t>(value - 1, 0) / buckets_.first);
    const int doublings = static_cast<int>(std::bit_width(above));
    const int bucket = (doublings + buckets_.log2_factor - 1) / buckets_.log2_factor;
    return static_cast<size_t>(std::min(bucket, buckets_.count));
  }

  // Observations that go on meanwhile may be in the buckets and not yet in the sum.
  prometheus::ClientMetric::Histogram Collect() const;

 private:
  const Buckets buckets_;
  // The last one is that of no bound.
  std::array<std::atomic<uint64_t>, kCountMax + 1> counts_ = {};
  // No integer: a few differences of FP64 in ULP would overflow it.
  std::atomic<double> sum_{0};
};

// The histograms of one name. Add is not thread-safe, and what it returns lives as long as this.
class HistogramFamily final : public prometheus::Collectable {
 public:
  HistogramFamily(std::string name, std::string help, const Buckets& buckets)
      : name_(std::move(name)), help_(std::move(help)), buckets_(buckets) {}

  // The series with these labels, which is made if there is none.
  Histogram* Add(const prometheus::Labels& labels);
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  struct Series {
    std::vector<prometheus::ClientMetric::Label> labels;
    std::unique_ptr<Histogram> histogram;
  };
  const std::string name_, help_;
  const Buckets buckets_;
  std::vector<Series> series_;
};

}  // namespace rlk::server
