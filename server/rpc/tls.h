// TLS of the TCP listeners, from files that may be replaced while the server runs.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/metrics/credentials.h"
#include "server/rpc/certificate.h"
#include "server/rpc/handshake.h"

namespace rlk::server {

struct TlsFiles {
  // PEM: the server's chain and key, and the authorities of callers (empty: they need none).
  std::string certificate, key, client_authorities;
};

// Callers without a certificate of the authorities do not get past the handshake.
class Tls {
 public:
  // Reads and checks the files. Errors name the flag. `on_refused` runs on gRPC's threads for every
  // caller's certificate that is refused, and for every other handshake that fails.
  static absl::StatusOr<std::unique_ptr<Tls>> Make(
      const TlsFiles& files, std::function<void(CredentialRefusal)> on_refused);
  ~Tls();

  const std::shared_ptr<grpc::ServerCredentials>& credentials() const { return credentials_; }
  // When the first certificate of the server's chain ends.
  absl::Time expires() const { return expires_; }

  // Reads the files again: true where they have changed and are in use now (by new connections,
  // within a second). An error leaves those before in use; it comes once for each change. What was
  // refused, as a certificate that is not valid yet, is in use as soon as it can be.
  absl::StatusOr<bool> Refresh();

 private:
  class Published;
  struct Contents {
    std::string certificate, key, client_authorities;
    bool operator==(const Contents&) const = default;
  };
  explicit Tls(const TlsFiles& files);
  absl::StatusOr<Contents> Read() const;
  absl::Status Use(const Contents& contents);

  const TlsFiles files_;
  // Of the last look, good or bad. One thread.
  absl::StatusOr<Contents> seen_ = Contents();
  // Why those are not in use.
  absl::Status refused_;
  absl::Time expires_;
  std::shared_ptr<Authorities> authorities_ = std::make_shared<Authorities>();
  std::unique_ptr<Published> certificate_, key_, client_authorities_;
  std::shared_ptr<grpc::ServerCredentials> credentials_;
  std::unique_ptr<HandshakeWatch> handshakes_;
};

}  // namespace rlk::server
