// Whose a credential is: a name, and what all of its sessions together may hold.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "kernels/core/limits.h"
#include "kernels/registry/call.h"

namespace rlk::server {

// Of one account; what is absent is that of Limits.
struct AccountBudget {
  std::optional<int64_t> sessions_max, tensors_max, resident_bytes_max;
  bool operator==(const AccountBudget&) const = default;
};

// Thread-safe. It is the same object for as long as the process knows the name.
class Account {
 public:
  Account(uint64_t id, std::string name, const Limits& limits);

  uint64_t id() const { return id_; }
  const std::string& name() const { return name_; }
  int64_t sessions_max() const { return sessions_max_.load(std::memory_order_relaxed); }
  Principal::Share share() const;

  void SetBudget(const AccountBudget& budget);

  // Its last credential was taken away; its sessions end.
  bool revoked() const { return revoked_.load(std::memory_order_relaxed); }
  void SetRevoked(bool revoked) { revoked_.store(revoked, std::memory_order_relaxed); }

 private:
  const uint64_t id_;
  const std::string name_;
  const Limits limits_;
  std::atomic<int64_t> sessions_max_, tensors_max_, resident_bytes_max_;
  std::atomic<bool> revoked_{false};
};

// All accounts, by name. Thread-safe.
class AccountTable {
 public:
  // An account beyond them shares the one of the name "": the names of certificates are their
  // authority's choice, and no list of them is endless.
  static constexpr size_t kAccountsMax = 4096;

  explicit AccountTable(const Limits& limits) : limits_(limits) {}

  std::shared_ptr<Account> Get(std::string_view name);

 private:
  const Limits limits_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Account>> accounts_;  // guarded by mutex_
};

}  // namespace rlk::server
