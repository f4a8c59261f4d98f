// TLS and token of a command. A token is never a word of the command line, which everybody on the
// host can read: it stands in a file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/cli/args.h"
#include "client/cpp/client.h"

namespace rlk::cli {

// --tls, --tls-ca, --tls-cert, --tls-key, --tls-server-name, --token-file.
std::vector<OptionSpec> CredentialOptions();

// Fills in options.tls and options.token for a server, from the options or else from RLK_TLS_CA,
// RLK_TLS_CERT, RLK_TLS_KEY and RLK_TOKEN_FILE of the environment, which are not for Unix sockets.
// INVALID_ARGUMENT for a file that cannot be read, or a token file that others may read or that has
// no token in it.
absl::Status ReadCredentials(const Args& args, const std::string& address,
                             client::ClientOptions& options);

}  // namespace rlk::cli
