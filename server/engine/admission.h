// Bounded waiting: how many calls, and how many bytes of them, may wait for one device.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/core/limits.h"

namespace rlk::server {

// Counts what waits in one queue. Not thread-safe: the queue's mutex guards it.
class Admission {
 public:
  // `lanes` calls run at a time; it enters the retry hint alone.
  Admission(const Limits& limits, int lanes);

  // RESOURCE_EXHAUSTED with a retry hint (kQueueFull, kBytesExhausted) when the call would exceed
  // a bound. A call larger than queue_bytes_max is let in when nothing else waits: per-call limits
  // have passed it, and a bound that could never be met would be a hidden per-call limit. Never
  // blocks.
  absl::Status Admit(int64_t bytes);
  // A call left the queue.
  void Leave(int64_t bytes);
  // A call took so long on its lane; the hint follows a moving average.
  void Observe(int64_t nanoseconds);

  int64_t calls() const { return calls_; }
  int64_t bytes() const { return bytes_; }
  // When the queue should have moved on, in 1 .. 1000 ms.
  int64_t retry_after_ms() const;

 private:
  int64_t calls_max_, bytes_max_;
  int lanes_;
  int64_t calls_ = 0, bytes_ = 0;
  int64_t average_ns_ = 1'000'000;
};

}  // namespace rlk::server
