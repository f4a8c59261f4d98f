// What the tests of credentials share: tokens and their file, a server that asks for them, and
// calls with headers of their own.
#pragma once

#include <grpc/grpc_security.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/integration/fixture.h"
#include "tests/integration/pki.h"

namespace rlk::test {

// sha256:HEX of a token.
std::string HashOf(std::string_view token);

// Replaces the file in one step, with this mode.
void WriteFile(const std::string& path, const std::string& text, unsigned mode = 0600);

using Headers = std::vector<std::pair<std::string, std::string>>;

inline Headers Bearer(const std::string& token) { return {{"authorization", "Bearer " + token}}; }

// A unary call with headers. To a method that streams it is a stream of one message.
RawReply CallWith(const std::shared_ptr<grpc::Channel>& channel, const std::string& path,
                  const std::string& request, const Headers& headers);

// How a client speaks TLS.
struct ClientTls {
  std::string authority;
  PemPair own = {};
  // The name that the server's certificate should have; empty: that of the target.
  std::string server_name = {};
  // Where sessions are kept, to be resumed; null keeps none. Outlives the channel.
  grpc_ssl_session_cache* sessions = nullptr;
};
std::shared_ptr<grpc::Channel> TlsChannel(const std::string& target, const ClientTls& tls);

// SERVING by grpc.health.v1 on that channel, without any credential.
bool Healthy(const std::shared_ptr<grpc::Channel>& channel);

// Every method that a server has, by the descriptors, but for health; and one that nobody has.
std::vector<std::string> AllPaths();

// Waits until `holds` does. The test's own time limit ends a wait that is in vain.
void Await(const std::function<bool()>& holds);

}  // namespace rlk::test
