#include "server/tensors/budget.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"

namespace rlk::server {
namespace {

constexpr int64_t kRetryMs = 500;

// Bounds with the names of their flags, and what is counted.
struct Bounds {
  int64_t session_tensors_max, session_bytes_max, bytes_max;
  const char *session_tensors_name, *session_bytes_name, *bytes_name;
  const char* what;
};

Bounds TensorBounds(const Limits& limits) {
  return {limits.session_tensors_max,
          limits.session_resident_bytes_max,
          limits.resident_bytes_max,
          "session_tensors_max",
          "session_resident_bytes_max",
          "resident_bytes_max",
          "tensor"};
}

Bounds ArenaBounds(const Limits& limits) {
  return {limits.session_arenas_max,
          limits.session_arena_bytes_max,
          limits.arena_bytes_max,
          "session_arenas_max",
          "session_arena_bytes_max",
          "arena_bytes_max",
          "arena"};
}

absl::Status Exhausted(Reason reason, const std::string& value, int64_t max, int64_t taken,
                       const char* limit, const std::string& what) {
  return MakeError(absl::StatusCode::kResourceExhausted,
                   {reason, limit, value,
                    "at most " + std::to_string(max) + " (" + limit + "), of which " +
                        std::to_string(taken) + " are taken",
                    kRetryMs},
                   what);
}

}  // namespace

struct Budget::Charge::Shared {
  explicit Shared(const Bounds& bounds_in) : bounds(bounds_in) {}

  const Bounds bounds;
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

Budget::Budget(const Limits& limits, Kind kind)
    : shared_(std::make_shared<Charge::Shared>(kind == Kind::kArenas ? ArenaBounds(limits)
                                                                     : TensorBounds(limits))) {}

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
  const Bounds& bounds = shared_->bounds;
  const absl::string_view what = bounds.what;
  const int64_t ever = std::min(bounds.session_bytes_max, bounds.bytes_max);
  if (bytes > ever) {
    const char* const limit =
        ever == bounds.session_bytes_max ? bounds.session_bytes_name : bounds.bytes_name;
    return InvalidArgument(Reason::kLimitExceeded, limit, std::to_string(bytes) + " bytes",
                           "at most " + std::to_string(ever) + " (" + limit + ")",
                           absl::StrCat("the ", what, " is too large to stay on this server"));
  }
  const std::lock_guard lock(shared_->mutex);
  const Usage own = UsageOf(shared_->owners, owner);
  if (share.account != 0) {
    RLK_RETURN_IF_ERROR(CheckAccount(UsageOf(shared_->accounts, share.account), share, bytes));
  }
  // Nothing taken exceeds its bound, so that the differences do not overflow.
  if (own.tensors >= bounds.session_tensors_max) {
    return Exhausted(Reason::kTensorsExhausted, absl::StrCat("one more ", what),
                     bounds.session_tensors_max, own.tensors, bounds.session_tensors_name,
                     absl::StrCat("the session has too many ", what, "s"));
  }
  if (bytes > bounds.session_bytes_max - own.bytes) {
    return Exhausted(Reason::kBytesExhausted, std::to_string(bytes) + " bytes",
                     bounds.session_bytes_max, own.bytes, bounds.session_bytes_name,
                     absl::StrCat("the session's ", what, "s take too many bytes"));
  }
  if (bytes > bounds.bytes_max - shared_->total.bytes) {
    return Exhausted(Reason::kBytesExhausted, std::to_string(bytes) + " bytes", bounds.bytes_max,
                     shared_->total.bytes, bounds.bytes_name,
                     absl::StrCat("the ", what, "s of all sessions take too many bytes"));
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
