// Times of the benchmarks that compare medians, and their texts.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/render.h"

namespace rlk::cli {

using Clock = std::chrono::steady_clock;

inline double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

class Median {
 public:
  void Add(double value) { values_.push_back(value); }
  // 0 of nothing.
  double Get() {
    if (values_.empty()) return 0;
    const auto middle = values_.begin() + static_cast<std::ptrdiff_t>(values_.size() / 2);
    std::nth_element(values_.begin(), middle, values_.end());
    return *middle;
  }

 private:
  std::vector<double> values_;
};

// What was not measured is 0: null in JSON, and nothing in a table.
inline Json NumberOrNull(double value) { return value > 0 ? Json(value) : Json(nullptr); }

inline std::string GigabytesPerSecond(int64_t bytes, double seconds) {
  return seconds > 0 ? Short(static_cast<double>(bytes) / seconds * 1e-9) : "";
}

inline std::string Microseconds(double seconds) { return seconds > 0 ? Short(seconds * 1e6) : ""; }

}  // namespace rlk::cli
