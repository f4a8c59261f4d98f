// What bounds a check: when it is to stop, and how much it may compute.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "kernels/registry/call.h"
#include "server/parity/interrupt.h"

namespace rlk::server {

// Shared by the threads of one check.
class CheckContext {
 public:
  CheckContext(Interrupt interrupt, int64_t work_bytes_max)
      : interrupt_(std::move(interrupt)), work_bytes_max_(work_bytes_max) {}

  // CANCELLED or DEADLINE_EXCEEDED.
  absl::Status CheckCaller() const;
  // Counts calls, and bytes that calls read or wrote. INVALID_ARGUMENT (kLimitExceeded) where the
  // check goes beyond `work_bytes_max`.
  absl::Status Charge(int64_t calls, int64_t bytes);

  // Waits for the outcome of a call, which must come. Where the caller of the check goes meanwhile,
  // `stop` runs once: it may make the outcome come sooner.
  template <typename Outcome, typename Stop>
  Outcome Await(std::future<Outcome> outcome, const Stop& stop) const {
    constexpr auto kLook = std::chrono::milliseconds(20);
    while (outcome.wait_for(kLook) != std::future_status::ready) {
      if (CheckCaller().ok()) continue;
      stop();
      break;
    }
    return outcome.get();
  }

  const Interrupt& interrupt() const { return interrupt_; }
  // Set once CheckCaller has failed: what the engine looks at.
  std::shared_ptr<const CancelFlag> flag() const { return flag_; }
  int64_t work_bytes_max() const { return work_bytes_max_; }
  int64_t calls() const { return calls_.load(std::memory_order_relaxed); }
  int64_t work_bytes() const { return work_bytes_.load(std::memory_order_relaxed); }

 private:
  const Interrupt interrupt_;
  const int64_t work_bytes_max_;
  const std::shared_ptr<CancelFlag> flag_ = std::make_shared<CancelFlag>(false);
  std::atomic<int64_t> calls_{0}, work_bytes_{0};
};

}  // namespace rlk::server
