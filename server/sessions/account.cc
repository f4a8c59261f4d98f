#include "server/sessions/account.h"

namespace rlk::server {

Account::Account(uint64_t id, std::string name, const Limits& limits)
    : id_(id), name_(std::move(name)), limits_(limits) {
  SetBudget({});
}

Principal::Share Account::share() const {
  return {id_, tensors_max_.load(std::memory_order_relaxed),
          resident_bytes_max_.load(std::memory_order_relaxed)};
}

void Account::SetBudget(const AccountBudget& budget) {
  sessions_max_ = budget.sessions_max.value_or(limits_.account_sessions_max);
  tensors_max_ = budget.tensors_max.value_or(limits_.account_tensors_max);
  resident_bytes_max_ = budget.resident_bytes_max.value_or(limits_.account_resident_bytes_max);
}

std::shared_ptr<Account> AccountTable::Get(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto found = accounts_.find(std::string(name));
  if (found != accounts_.end()) return found->second;
  if (accounts_.size() >= kAccountsMax) name = "";
  std::shared_ptr<Account>& account = accounts_[std::string(name)];
  if (account == nullptr) {
    account = std::make_shared<Account>(accounts_.size(), std::string(name), limits_);
  }
  return account;
}

}  // namespace rlk::server
