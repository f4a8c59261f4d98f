// When work for a caller is to stop.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>

#include "absl/status/status.h"

namespace rlk::server {

struct Interrupt {
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  // May be empty; called from the thread that works.
  std::function<bool()> cancelled = {};

  // Not owned, may be null: true once the server has no more time for the work.
  const std::atomic<bool>* ending = nullptr;

  // CANCELLED (kCancelled) or DEADLINE_EXCEEDED (kDeadlineExceeded) when nobody waits any more,
  // UNAVAILABLE (kDraining) at the end of the server.
  absl::Status Check() const;
};

}  // namespace rlk::server
