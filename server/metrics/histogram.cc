#include "server/metrics/histogram.h"

#include <limits>

namespace rlk::server {

prometheus::ClientMetric::Histogram Histogram::Collect() const {
  prometheus::ClientMetric::Histogram result;
  // Read once: the count is that of the buckets whatever is observed meanwhile.
  int64_t bound = buckets_.first;
  for (int i = 0; i <= buckets_.count; ++i, bound <<= buckets_.log2_factor) {
    result.sample_count += counts_[static_cast<size_t>(i)].load(std::memory_order_relaxed);
    const bool last = i == buckets_.count;
    result.bucket.push_back(
        {result.sample_count, last ? std::numeric_limits<double>::infinity()
                                   : static_cast<double>(bound) / buckets_.units});
  }
  result.sample_sum = sum_.load(std::memory_order_relaxed) / buckets_.units;
  return result;
}

Histogram* HistogramFamily::Add(const prometheus::Labels& labels) {
  Series series;
  for (const auto& [name, value] : labels) series.labels.push_back({name, value});
  for (const Series& present : series_) {
    if (present.labels == series.labels) return present.histogram.get();
  }
  series.histogram = std::make_unique<Histogram>(buckets_);
  series_.push_back(std::move(series));
  return series_.back().histogram.get();
}

std::vector<prometheus::MetricFamily> HistogramFamily::Collect() const {
  prometheus::MetricFamily family{name_, help_, prometheus::MetricType::Histogram, {}};
  for (const Series& series : series_) {
    prometheus::ClientMetric metric;
    metric.label = series.labels;
    metric.histogram = series.histogram->Collect();
    family.metric.push_back(std::move(metric));
  }
  return {std::move(family)};
}

}  // namespace rlk::server
