// TLS handshakes of this process's listeners that fail inside the TLS library. gRPC 1.51 logs them
// and tells nobody, so this program brings its own SSL_do_handshake, which asks the library's.
#pragma once

#include <functional>

#include "server/metrics/credentials.h"

namespace rlk::server {

// While it lives, it is told of each of them, of whatever listener of the process: a certificate
// whose bytes are cut or wrong (kCertificateMalformed), one whose key the caller does not have
// (kCertificateOther), and all else (kHandshakeFailed): bytes that are no TLS, a version or cipher
// that gRPC does not take, a caller that does not trust this server. A caller that only hangs up is
// none. `on_failed` runs on gRPC's threads, and must not come back here.
class HandshakeWatch {
 public:
  explicit HandshakeWatch(std::function<void(CredentialRefusal)> on_failed);
  ~HandshakeWatch();
  HandshakeWatch(const HandshakeWatch&) = delete;
  HandshakeWatch& operator=(const HandshakeWatch&) = delete;

 private:
  friend void TellOfFailure(CredentialRefusal why);
  const std::function<void(CredentialRefusal)> on_failed_;
};

}  // namespace rlk::server
