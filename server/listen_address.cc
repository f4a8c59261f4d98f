#include "server/listen_address.h"

#include <cstdint>

#include "absl/strings/numbers.h"

namespace rlk::server {

bool IsListenAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  const std::string host = address.substr(0, colon);
  const std::string port = colon == std::string::npos ? std::string() : address.substr(colon + 1);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const bool digits = port.find_first_not_of("0123456789") == std::string::npos;
  uint32_t number = 0;
  return !host.empty() && host.find_first_of("/%") == std::string::npos &&
         (bracketed || host.find_first_of(":[]") == std::string::npos) && digits &&
         absl::SimpleAtoi(port, &number) && number <= 65535;
}

bool IsLoopback(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  return host == "localhost" || host == "[::1]" ||
         (host.rfind("127.", 0) == 0 && host.find_first_not_of("0123456789.") == std::string::npos);
}

void WarnOfOpenListeners(const Options& options, const Logger& logger) {
  const bool tls = !options.tls.certificate.empty();
  const bool asks = !options.tokens.empty() || !options.tls.client_authorities.empty();
  for (const std::string& address : options.listen) {
    if (IsLoopback(address)) continue;
    if (!asks) {
      logger.Warning("whoever reaches this address can call every method: there are no credentials",
                     {{"address", address}, {"flags", "--tokens, --tls-client-ca"}});
    }
    if (!tls) {
      logger.Warning("what is sent to this address can be read and changed on the way",
                     {{"address", address}, {"flags", "--tls-cert, --tls-key"}});
    }
  }
}

}  // namespace rlk::server
