// Lines that others make come as fast as they do: one at most every ten seconds stands for all.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

namespace rlk::server {

// Not thread-safe.
class LineBound {
 public:
  using Clock = std::chrono::steady_clock;

  // How many lines this one stands for; none where it is to be left out.
  std::optional<int64_t> Admit(Clock::time_point now) {
    constexpr std::chrono::seconds kInterval{10};
    ++lines_;
    if (last_ && now - *last_ < kInterval) return std::nullopt;
    last_ = now;
    return std::exchange(lines_, 0);
  }

 private:
  std::optional<Clock::time_point> last_;
  int64_t lines_ = 0;  // since the last
};

}  // namespace rlk::server
