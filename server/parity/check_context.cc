#include "server/parity/check_context.h"

#include <string>

#include "kernels/core/status.h"

namespace rlk::server {

absl::Status CheckContext::CheckCaller() const {
  absl::Status status = interrupt_.Check();
  if (!status.ok()) flag_->store(true, std::memory_order_relaxed);
  return status;
}

absl::Status CheckContext::Charge(int64_t calls, int64_t bytes) {
  calls_.fetch_add(calls, std::memory_order_relaxed);
  const int64_t before = work_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  // Neither is negative, and before + bytes is at most one call above the limit for each thread.
  if (bytes <= work_bytes_max_ - before) return absl::OkStatus();
  return InvalidArgument(
      Reason::kLimitExceeded, "check", std::to_string(before + bytes) + " bytes",
      "at most " + std::to_string(work_bytes_max_) + " bytes (parity_work_bytes_max)",
      "the calls of the check read and write too much: smaller tensors, fewer axes or repeats");
}

}  // namespace rlk::server
