// Latencies of any number of calls in bounded memory, in the manner of HdrHistogram: 128 buckets of
// equal width between a power of two and the next, so that what is read back is at most 1/128 above
// what was recorded.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace rlk::cli {

// Values are nanoseconds in [0, kLargest]; what is outside counts as the nearest of these. Not
// thread-safe: each thread has its own, and they are merged.
class LatencyHistogram {
 public:
  static constexpr int kPrecisionBits = 7;
  static constexpr int64_t kLargest = (int64_t{1} << 42) - 1;  // 73 minutes

  void Add(int64_t ns) {
    const int64_t value = std::clamp<int64_t>(ns, 0, kLargest);
    ++counts_[Bucket(value)];
    ++count_;
    sum_ += value;
    max_ = std::max(max_, value);
    min_ = std::min(min_, value);
  }

  void Merge(const LatencyHistogram& other) {
    for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
    count_ += other.count_;
    sum_ += other.sum_;
    max_ = std::max(max_, other.max_);
    min_ = std::min(min_, other.min_);
  }

  int64_t count() const { return count_; }
  // 0 where nothing was recorded, like all that follow.
  int64_t min() const { return count_ == 0 ? 0 : min_; }
  int64_t max() const { return max_; }
  double mean() const {
    return count_ == 0 ? 0 : static_cast<double>(sum_) / static_cast<double>(count_);
  }

  // Nearest rank: at least `fraction` of all values are not above the result, which is the largest
  // value of its bucket, and never above max().
  int64_t Percentile(double fraction) const {
    if (count_ == 0) return 0;
    const auto rank = static_cast<int64_t>(std::ceil(fraction * static_cast<double>(count_)));
    int64_t seen = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i];
      if (seen >= std::max<int64_t>(rank, 1)) return std::min(LargestOf(i), max_);
    }
    return max_;
  }

 private:
  // Below 2^(kPrecisionBits + 1) a value is its own bucket; above, its leading kPrecisionBits + 1
  // bits and their place are.
  static size_t Bucket(int64_t value) {
    const auto bits = static_cast<uint64_t>(value);
    const int shift = std::max(static_cast<int>(std::bit_width(bits)) - kPrecisionBits - 1, 0);
    return (static_cast<size_t>(shift) << kPrecisionBits) + static_cast<size_t>(bits >> shift);
  }
  static int64_t LargestOf(size_t bucket) {
    constexpr size_t kHalf = size_t{1} << kPrecisionBits;
    if (bucket < 2 * kHalf) return static_cast<int64_t>(bucket);
    const auto shift = static_cast<int>(bucket / kHalf) - 1;
    const auto leading = static_cast<int64_t>(bucket - (static_cast<size_t>(shift) * kHalf));
    return ((leading + 1) << shift) - 1;
  }

  std::vector<int64_t> counts_ = std::vector<int64_t>(Bucket(kLargest) + 1);
  int64_t count_ = 0;
  int64_t sum_ = 0;
  int64_t max_ = 0;
  int64_t min_ = kLargest;
};

}  // namespace rlk::cli
