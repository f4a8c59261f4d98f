#include "server/tensors/budget.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/core/status.h"

namespace rlk::server {
namespace {

constexpr int64_t kRetryMs = 500;

absl::Status Exhausted(Reason reason, const std::string& value, int64_t max, int64_t taken,
                       const char* limit, const char* what) {
  return MakeError(absl::StatusCode::kResourceExhausted,
                   {reason,
                    {},
                    value,
                    "at most " + std::to_string(max) + " (" + limit + "), of which " +
                        std::to_string(taken) + " are taken",
                    kRetryMs},
                   what);
}

}  // namespace

struct Budget::Charge::Shared {
  explicit Shared(const Limits& limits_in) : limits(limits_in) {}

  const Limits limits;
  mutable std::mutex mutex;
  Usage total;                                   // guarded by mutex
  std::unordered_map<uint64_t, Usage> owners;    // guarded by mutex
  std::unordered_map<uint64_t, Usage> accounts;  // guarded by mutex
};

namespace {

Usage UsageOf(const std::unordered_map<uint64_t, Usage>& usages, uint64_t key) {
  const auto found = usages.find(key);
  return found == usages.end() ? Usage{} : found->second;
}

void GiveBack(std::unordered_map<uint64_t, Usage>& usages, uint64_t key, int64_t bytes) {
  const auto found = usages.find(key);
  found->second.bytes -= bytes;
  if (--found->second.tensors == 0) usages.erase(found);
}

// Nothing taken exceeds its bound, so that the differences do not overflow; but the bounds of an
// account may have been lowered since.
absl::Status CheckAccount(const Usage& taken, const Principal::Share& share, int64_t bytes) {
  if (taken.tensors >= share.tensors_max) {
    return Exhausted(Reason::kTensorsExhausted, "one more tensor", share.tensors_max, taken.tensors,
                     "account_tensors_max", "the account has too many tensors");
  }
  if (bytes > share.resident_bytes_max - taken.bytes) {
    return Exhausted(Reason::kBytesExhausted, std::to_string(bytes) + " bytes",
                     share.resident_bytes_max, taken.bytes, "account_resident_bytes_max",
                     "the account's tensors take too many bytes");
  }
  return absl::OkStatus();
}

}  // namespace

Budget::Budget(const Limits& limits) : shared_(std::make_shared<Charge::Shared>(limits)) {}

Budget::Charge::Charge(std::shared_ptr<Shared> shared, uint64_t owner, uint64_t account,
                       int64_t bytes)
    : shared_(std::move(shared)), owner_(owner), account_(account), bytes_(bytes) {}

Budget::Charge::~Charge() {
  const std::lock_guard lock(shared_->mutex);
  shared_->total.bytes -= bytes_;
  --shared_->total.tensors;
  GiveBack(shared_->owners, owner_, bytes_);
  if (account_ != 0) GiveBack(shared_->accounts, account_, bytes_);
}

absl::StatusOr<std::unique_ptr<Budget::Charge>> Budget::Take(uint64_t owner, int64_t bytes,
                                                             const Principal::Share& share) {
  const Limits& limits = shared_->limits;
  const int64_t ever = std::min(limits.session_resident_bytes_max, limits.resident_bytes_max);
  if (bytes > ever) {
    const bool session = ever == limits.session_resident_bytes_max;
    return InvalidArgument(
        Reason::kLimitExceeded, {}, std::to_string(bytes) + " bytes",
        "at most " + std::to_string(ever) +
            (session ? " (session_resident_bytes_max)" : " (resident_bytes_max)"),
        "the tensor is too large to stay on this server");
  }
  const std::lock_guard lock(shared_->mutex);
  const Usage own = UsageOf(shared_->owners, owner);
  if (share.account != 0) {
    RLK_RETURN_IF_ERROR(CheckAccount(UsageOf(shared_->accounts, share.account), share, bytes));
  }
  // Nothing taken exceeds its bound, so that the differences do not overflow.
  if (own.tensors >= limits.session_tensors_max) {
    return Exhausted(Reason::kTensorsExhausted, "one more tensor", limits.session_tensors_max,
                     own.tensors, "session_tensors_max", "the session has too many tensors");
  }
  if (bytes > limits.session_resident_bytes_max - own.bytes) {
    return Exhausted(Reason::kBytesExhausted, std::to_string(bytes) + " bytes",
                     limits.session_resident_bytes_max, own.bytes, "session_resident_bytes_max",
                     "the session's tensors take too many bytes");
  }
  if (bytes > limits.resident_bytes_max - shared_->total.bytes) {
    return Exhausted(Reason::kBytesExhausted, std::to_string(bytes) + " bytes",
                     limits.resident_bytes_max, shared_->total.bytes, "resident_bytes_max",
                     "the tensors of all sessions take too many bytes");
  }
  std::unique_ptr<Charge> charge(new Charge(shared_, owner, share.account, bytes));
  const auto add = [bytes](Usage& usage) {
    usage.bytes += bytes;
    ++usage.tensors;
  };
  add(shared_->owners[owner]);
  if (share.account != 0) add(shared_->accounts[share.account]);
  add(shared_->total);
  return charge;
}

Usage Budget::Of(uint64_t owner) const {
  const std::lock_guard lock(shared_->mutex);
  return UsageOf(shared_->owners, owner);
}

Usage Budget::Total() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->total;
}

}  // namespace rlk::server
