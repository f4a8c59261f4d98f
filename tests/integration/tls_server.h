// A server with TLS, and the authorities that it and its callers have their certificates of.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "server/options.h"
#include "tests/integration/security_fixture.h"

namespace rlk::test {

inline const Authority& Servers() {
  static const Authority authority("authority of servers");
  return authority;
}

inline const Authority& Callers() {
  static const Authority authority("authority of callers");
  return authority;
}

// A server with TLS; with `callers`, one that asks for certificates.
class TlsServer {
 public:
  explicit TlsServer(const std::string& callers = "", const std::string& tokens = "",
                     int64_t account_sessions_max = 1024) {
    const PemPair own = IssueServer(Servers());
    WriteFile(File("cert"), own.certificate, 0644);
    WriteFile(File("key"), own.key);
    server::Options options = TestOptions();
    options.tls = {File("cert"), File("key"), callers.empty() ? "" : File("ca")};
    if (!callers.empty()) WriteFile(File("ca"), callers, 0644);
    if (!tokens.empty()) {
      WriteFile(File("tokens"), tokens);
      options.tokens = File("tokens");
    }
    options.limits.account_sessions_max = account_sessions_max;
    options.health_listen = "127.0.0.1:0";
    server_.emplace(options);
  }

  std::string File(const std::string& name) const { return dir_.File(name); }
  std::string target() const { return server_->tcp(); }
  double Value(const std::string& series) const {
    return SeriesValue(Scrape(server_->metrics()), series);
  }
  double Refused(const std::string& reason) const {
    return Value("rlk_credentials_refused_total{reason=\"" + reason + "\"}");
  }
  std::string id() { return server_->server().addresses().server_id; }
  bool ProbesSucceed() { return Healthy(DefaultChannel(server_->server().addresses().health)); }

 private:
  TempDir dir_;
  std::optional<TestServer> server_;
};

inline grpc::Status Forward(const std::shared_ptr<grpc::Channel>& channel,
                            const Headers& headers = {}) {
  return CallWith(channel, kForwardPath, ForwardRequest().SerializeAsString(), headers).status;
}

}  // namespace rlk::test
