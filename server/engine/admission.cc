#include "server/engine/admission.h"

#include <algorithm>
#include <string>

#include "kernels/core/status.h"

namespace rlk::server {

Admission::Admission(const Limits& limits, int lanes)
    : calls_max_(limits.queue_calls_max),
      bytes_max_(limits.queue_bytes_max),
      lanes_(std::max(lanes, 1)) {}

absl::Status Admission::Admit(int64_t bytes) {
  if (calls_ >= calls_max_) {
    return MakeError(
        absl::StatusCode::kResourceExhausted,
        {Reason::kQueueFull, "queue_calls_max", std::to_string(calls_) + " calls",
         "at most " + std::to_string(calls_max_) + " (queue_calls_max)", retry_after_ms()},
        "too many calls wait");
  }
  // Neither term is negative and bytes_ is at most one call above bytes_max_: no overflow.
  if (calls_ > 0 && bytes > bytes_max_ - bytes_) {
    return MakeError(
        absl::StatusCode::kResourceExhausted,
        {Reason::kBytesExhausted, "queue_bytes_max", std::to_string(bytes) + " bytes",
         "at most " + std::to_string(bytes_max_) + " bytes (queue_bytes_max), of which " +
             std::to_string(bytes_) + " are taken",
         retry_after_ms()},
        "too many bytes wait");
  }
  ++calls_;
  bytes_ += bytes;
  return absl::OkStatus();
}

void Admission::Leave(int64_t bytes) {
  --calls_;
  bytes_ -= bytes;
}

void Admission::Observe(int64_t nanoseconds) { average_ns_ += (nanoseconds - average_ns_) / 16; }

int64_t Admission::retry_after_ms() const {
  const int64_t average_us = std::clamp<int64_t>(average_ns_ / 1000, 1, 1'000'000);
  const int64_t wait_ms = std::min<int64_t>(calls_, 1'000'000) * average_us / lanes_ / 1000;
  return std::clamp<int64_t>(wait_ms, 1, 1000);
}

}  // namespace rlk::server
