// How many bytes and tensors may stay on the server, for each owner, for each account, and in all.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "kernels/core/limits.h"
#include "kernels/registry/call.h"

namespace rlk::server {

struct Usage {
  int64_t bytes = 0;
  int64_t tensors = 0;
};

// Thread-safe. Charges may outlive it.
class Budget {
 public:
  // Arenas have bounds of their own, and no account's: clients of this host open them.
  enum class Kind { kTensors, kArenas };
  explicit Budget(const Limits& limits, Kind kind = Kind::kTensors);

  // Room that is taken until it goes.
  class Charge {
   public:
    ~Charge();
    Charge(const Charge&) = delete;
    Charge& operator=(const Charge&) = delete;

   private:
    friend class Budget;
    struct Shared;
    Charge(std::shared_ptr<Shared> shared, uint64_t owner, uint64_t account, int64_t bytes);

    const std::shared_ptr<Shared> shared_;
    const uint64_t owner_, account_;
    const int64_t bytes_;
  };

  // Takes room for one tensor. INVALID_ARGUMENT (kLimitExceeded) where it could never fit;
  // RESOURCE_EXHAUSTED with RetryInfo (kBytesExhausted, kTensorsExhausted) where it does not now.
  absl::StatusOr<std::unique_ptr<Charge>> Take(uint64_t owner, int64_t bytes,
                                               const Principal::Share& share = {});

  Usage Of(uint64_t owner) const;
  Usage Total() const;

 private:
  std::shared_ptr<Charge::Shared> shared_;
};

}  // namespace rlk::server
