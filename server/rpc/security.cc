#include "server/rpc/security.h"

#include <chrono>
#include <utility>

#include "kernels/core/status.h"

namespace rlk::server {

absl::StatusOr<std::unique_ptr<Security>> Security::Make(const Files& files, const Limits& limits,
                                                         const Logger* logger,
                                                         SecurityHooks hooks) {
  std::unique_ptr<Security> security(new Security(limits, logger, std::move(hooks)));
  if (!files.tokens.empty()) {
    RLK_ASSIGN_OR_RETURN(security->tokens_, TokenFile::Open(files.tokens, &security->accounts_));
  }
  if (!files.tls.certificate.empty()) {
    RLK_ASSIGN_OR_RETURN(security->tls_, Tls::Make(files.tls, security->hooks_.on_refused));
    security->hooks_.on_certificate_end(
        absl::ToDoubleSeconds(security->tls_->expires() - absl::UnixEpoch()));
  }
  const bool certificates = !files.tls.client_authorities.empty();
  if (certificates || !files.tokens.empty()) {
    security->gate_ = std::make_unique<Gate>(
        Gate::Rules{security->tokens_.get(), certificates, &security->accounts_,
                    [hooks = &security->hooks_](CredentialRefusal why) {
                      hooks->on_refused(why);
                      hooks->on_call_refused();
                    },
                    logger});
  }
  if (security->tokens_ != nullptr || security->tls_ != nullptr) {
    security->watch_ = std::thread([object = security.get()] { object->Watch(); });
  }
  return security;
}

Security::~Security() {
  if (!watch_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  watch_.join();
}

std::shared_ptr<grpc::ServerCredentials> Security::credentials() const {
  return tls_ == nullptr ? grpc::InsecureServerCredentials() : tls_->credentials();
}

void Security::Watch() {
  constexpr auto kInterval = std::chrono::seconds(1);
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, kInterval, [this] { return stopping_; })) {
    lock.unlock();
    RefreshAll();
    lock.lock();
  }
}

void Security::RefreshAll() {
  if (tokens_ != nullptr) {
    absl::Status status;
    if (tokens_->Refresh(&status) != TokenFile::Reload::kUnchanged) {
      Told(CredentialFile::kTokens, status);
    }
  }
  if (tls_ != nullptr) {
    const absl::StatusOr<bool> changed = tls_->Refresh();
    if (changed.ok() && !*changed) return;
    hooks_.on_certificate_end(absl::ToDoubleSeconds(tls_->expires() - absl::UnixEpoch()));
    Told(CredentialFile::kCertificates, changed.status());
  }
}

void Security::Told(CredentialFile file, const absl::Status& status) {
  hooks_.on_reload(file, status.ok());
  const char* const name = kCredentialFiles[static_cast<size_t>(file)];
  if (status.ok()) {
    logger_->Info("credentials were read again", {{"file", name}});
  } else {
    logger_->Error("credentials could not be read again; the former ones stay",
                   {{"file", name}, {"error", std::string(status.message())}});
  }
}

}  // namespace rlk::server
