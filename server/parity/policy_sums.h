// Figures of many values, in the order in which they come. All FP64.
#pragma once

#include <cmath>
#include <cstdint>

#include "server/parity/policy.h"

namespace rlk::server {

class Accumulator {
 public:
  void Add(double value) {
    if (count_ == 0 || value < min_) min_ = value;
    if (count_ == 0 || value > max_) max_ = value;
    ++count_;
    sum_ += value;
    squares_ += value * value;
    // Welford's: the square of the mean may be 10^16 times the variance.
    const double away = value - center_;
    center_ += away / static_cast<double>(count_);
    deviations_ += away * (value - center_);
  }
  double sum() const { return sum_; }
  double squares() const { return squares_; }
  double mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }
  // The deviation is NaN where a value is infinite.
  Summary summary() const {
    if (count_ == 0) return {};
    return {min_, mean(), max_, std::sqrt(deviations_ / static_cast<double>(count_))};
  }

 private:
  int64_t count_ = 0;
  double min_ = 0, max_ = 0, sum_ = 0, squares_ = 0;
  double center_ = 0, deviations_ = 0;
};

// exp(x) - 1 - x, never negative, with 12 digits also where x is small.
inline double ExpBeyondLine(double x) {
  if (std::fabs(x) >= 1e-3) return std::expm1(x) - x;
  return x * x * (1.0 / 2 + x * (1.0 / 6 + x * (1.0 / 24 + x * (1.0 / 120))));
}

}  // namespace rlk::server
