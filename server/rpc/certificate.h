// X.509: what must hold of a server's own certificate, and of a caller's.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/metrics/credentials.h"

namespace rlk::server {

// The end of validity of the chain's certificate that ends first. INVALID_ARGUMENT, naming
// --tls-cert or --tls-key, where a PEM file is malformed or cut, the key is not the certificate's,
// or the certificate is not valid at this time.
absl::StatusOr<absl::Time> CheckOwnCertificate(const std::string& chain_pem,
                                               const std::string& key_pem);

// The authorities whose certificates callers have. Thread-safe.
class Authorities {
 public:
  Authorities();
  ~Authorities();

  // INVALID_ARGUMENT naming --tls-client-ca; then the former ones stay.
  absl::Status Set(const std::string& pem);

  // Null for a certificate that is one of theirs, valid now, and for use by a client. `chain_pem`
  // has the certificates between, in any order.
  std::optional<CredentialRefusal> Check(std::string_view leaf_pem,
                                         std::string_view chain_pem) const;

 private:
  struct Store;
  mutable std::mutex mutex_;
  std::shared_ptr<const Store> store_;  // guarded by mutex_
};

}  // namespace rlk::server
