// Latencies of calls, and their percentiles.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/cli/render.h"

namespace rlk::cli {

class LatencySamples {
 public:
  void Add(std::chrono::steady_clock::duration latency) {
    samples_us_.push_back(std::chrono::duration<double, std::micro>(latency).count());
  }
  size_t count() const { return samples_us_.size(); }

  // Nearest rank: the smallest sample that at least `fraction` of all do not exceed.
  double Percentile(double fraction) const {
    if (samples_us_.empty()) return 0;
    std::vector<double> sorted = samples_us_;
    const auto rank = static_cast<size_t>(std::ceil(fraction * static_cast<double>(count())));
    const auto nth = sorted.begin() + static_cast<std::ptrdiff_t>(std::max<size_t>(rank, 1) - 1);
    std::nth_element(sorted.begin(), nth, sorted.end());
    return *nth;
  }

  // {"min", "p50", "p90", "p99", "max"} in microseconds.
  Json Summary() const {
    return {{"min", Percentile(0)},
            {"p50", Percentile(0.5)},
            {"p90", Percentile(0.9)},
            {"p99", Percentile(0.99)},
            {"max", Percentile(1)}};
  }
  std::string Text() const {
    return "p50 " + Short(Percentile(0.5)) + " us, p90 " + Short(Percentile(0.9)) + " us, p99 " +
           Short(Percentile(0.99)) + " us";
  }

 private:
  std::vector<double> samples_us_;
};

}  // namespace rlk::cli
