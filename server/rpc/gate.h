// Who may call. Everything but grpc.health.v1 comes through here.
#pragma once

#include <grpcpp/server_context.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "server/log/log.h"
#include "server/metrics/credentials.h"
#include "server/sessions/account.h"
#include "server/sessions/token_file.h"

namespace rlk::server {

// Thread-safe.
class Gate {
 public:
  // What a caller must have. Nothing is owned, and everything outlives the gate.
  struct Rules {
    // A token of this file in the metadata: "authorization: Bearer TOKEN". Null asks for none.
    const TokenFile* tokens = nullptr;
    // The listener asks for a certificate and has verified it. Where there are tokens too, the
    // account is the token's.
    bool certificates = false;
    AccountTable* accounts = nullptr;
    // Of every refusal, from any thread.
    std::function<void(CredentialRefusal)> on_refused;
    const Logger* logger = nullptr;
  };
  explicit Gate(Rules rules) : rules_(std::move(rules)) {}

  // The account of the call's credential; null for a caller on the Unix socket, which only the
  // server's own user can open. UNAUTHENTICATED (kUnauthenticated), which repeats nothing of what
  // the caller sent.
  absl::StatusOr<std::shared_ptr<Account>> Admit(const grpc::ServerContextBase& context) const;

 private:
  absl::StatusOr<std::shared_ptr<Account>> ByToken(const grpc::ServerContextBase& context) const;
  absl::StatusOr<std::shared_ptr<Account>> ByCertificate(
      const grpc::ServerContextBase& context) const;
  absl::Status Refuse(const grpc::ServerContextBase& context, CredentialRefusal why,
                      const char* field, const char* value) const;

  const Rules rules_;
  mutable std::mutex mutex_;
  mutable std::chrono::steady_clock::time_point logged_;  // guarded by mutex_
  mutable int64_t refused_ = 0;                           // guarded by mutex_
};

}  // namespace rlk::server
