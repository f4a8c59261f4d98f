// How long the phases of a start take.
#pragma once

#include <chrono>

#include "server/log/log.h"

namespace rlk::server {

// Logs how long each phase of the start took.
class StartClock {
 public:
  explicit StartClock(const Logger* logger) : logger_(logger) {}

  void Phase(const char* name) {
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::duration<double, std::milli> took = now - last_;
    logger_->Info("start phase", {{"phase", name}, {"milliseconds", took.count()}});
    last_ = now;
  }

  double TotalMilliseconds() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_)
        .count();
  }

 private:
  const Logger* const logger_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_ = start_;
};

}  // namespace rlk::server
