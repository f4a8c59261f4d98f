// When work for a caller is to stop.
#pragma once

#include <chrono>
#include <functional>

#include "absl/status/status.h"

namespace rlk::server {

struct Interrupt {
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  // May be empty; called from the thread that works.
  std::function<bool()> cancelled = {};

  // CANCELLED (kCancelled) or DEADLINE_EXCEEDED (kDeadlineExceeded) when nobody waits any more.
  absl::Status Check() const;
};

}  // namespace rlk::server
