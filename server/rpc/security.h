// Everything about credentials that a server has: TLS of its TCP listeners, tokens, the gate, and
// the thread that looks whether their files have changed.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "kernels/core/limits.h"
#include "server/log/log.h"
#include "server/metrics/credentials.h"
#include "server/rpc/gate.h"
#include "server/rpc/tls.h"
#include "server/sessions/account.h"
#include "server/sessions/token_file.h"

namespace rlk::server {

// Called from any thread.
struct SecurityHooks {
  std::function<void(CredentialRefusal)> on_refused;
  // Of a call, besides.
  std::function<void()> on_call_refused;
  std::function<void(CredentialFile, bool ok)> on_reload;
  // When the server's certificate ends, in seconds of Unix time.
  std::function<void(double)> on_certificate_end;
};

class Security {
 public:
  struct Files {
    // Empty: no TLS.
    TlsFiles tls;
    // Empty: no tokens.
    std::string tokens;
  };
  // Errors name the flag. `logger` outlives the object.
  static absl::StatusOr<std::unique_ptr<Security>> Make(const Files& files, const Limits& limits,
                                                        const Logger* logger, SecurityHooks hooks);
  ~Security();

  // For TCP listeners.
  std::shared_ptr<grpc::ServerCredentials> credentials() const;
  // Null where everybody is let in.
  const Gate* gate() const { return gate_.get(); }

 private:
  Security(const Limits& limits, const Logger* logger, SecurityHooks hooks)
      : accounts_(limits), logger_(logger), hooks_(std::move(hooks)) {}
  void Watch();
  void RefreshAll();
  void Told(CredentialFile file, const absl::Status& status);

  AccountTable accounts_;
  const Logger* const logger_;
  const SecurityHooks hooks_;
  std::unique_ptr<TokenFile> tokens_;
  std::unique_ptr<Tls> tls_;
  std::unique_ptr<Gate> gate_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread watch_;
};

}  // namespace rlk::server
