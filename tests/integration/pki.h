// Authorities and certificates made while a test runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace rlk::test {

struct CertificateRequest {
  // The common name; empty: none.
  std::string name = "caller";
  // Subject alternative names, as OpenSSL spells them: "DNS:localhost", "IP:127.0.0.1", "URI:...".
  std::vector<std::string> alternative_names = {};
  // From now.
  int64_t begins_seconds = -3600, ends_seconds = 3600;
  enum class Use { kServer, kClient } use = Use::kClient;
};

struct PemPair {
  std::string certificate, key;
};

// Aborts where OpenSSL fails.
class Authority {
 public:
  explicit Authority(const std::string& name);
  // One that is itself certified by another.
  Authority(const std::string& name, const Authority& above);
  ~Authority();

  // The authority's own certificate.
  const std::string& pem() const { return pem_; }
  PemPair Issue(const CertificateRequest& request) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::string pem_;
};

// A server's certificate for 127.0.0.1 and localhost.
PemPair IssueServer(const Authority& authority);

}  // namespace rlk::test
