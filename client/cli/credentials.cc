#include "client/cli/credentials.h"

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

constexpr char kTokenOption[] = "--token-file";
constexpr int64_t kTokenBytesMax = 4096;

absl::Status FileError(const std::string& path, const char* allowed, const char* message) {
  return InvalidArgument(Reason::kUnknownOption, kTokenOption, path, allowed, message);
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
    // Not repeated: it may be the token itself, given in place of its file.
    return FileError("", "a file that can be read", "there is no such file");
  }
  if ((info.st_mode & S_IRWXO) != 0) {
    return FileError(path, "a file of mode 0640 or stricter",
                     "everybody on this host may read or write the file");
  }
  std::string token(static_cast<size_t>(kTokenBytesMax) + 2, ' ');
  std::ifstream file(path, std::ios::binary);
  file.read(token.data(), static_cast<std::streamsize>(token.size()));
  token.resize(static_cast<size_t>(file.gcount()));
  // The line end that an editor or echo leaves; anything else is an error, and not the token's.
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  const bool text = token.find_first_not_of(
                        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/=") ==
                    std::string::npos;
  if (token.empty() || static_cast<int64_t>(token.size()) > kTokenBytesMax || !text) {
    return FileError(path, "one token of letters, digits and -._~+/=, at most 4096 bytes",
                     "the file has no token");
  }
  return token;
}

}  // namespace

std::vector<OptionSpec> CredentialOptions() {
  return {{"--tls", false}, {"--tls-ca"},          {"--tls-cert"},
          {"--tls-key"},    {"--tls-server-name"}, {kTokenOption}};
}

absl::Status ReadCredentials(const Args& args, const std::string& address,
                             client::ClientOptions& options) {
  const bool unix_socket = address.rfind("unix:", 0) == 0;
  const auto option_or = [&](const char* option, const char* variable) {
    const char* const environment = unix_socket ? nullptr : std::getenv(variable);
    return args.Get(option, environment == nullptr ? "" : environment);
  };
  client::TlsOptions tls;
  tls.ca_file = option_or("--tls-ca", "RLK_TLS_CA");
  tls.cert_file = option_or("--tls-cert", "RLK_TLS_CERT");
  tls.key_file = option_or("--tls-key", "RLK_TLS_KEY");
  tls.server_name = args.Get("--tls-server-name");
  const bool given = !tls.ca_file.empty() || !tls.cert_file.empty() || !tls.key_file.empty() ||
                     !tls.server_name.empty();
  if (args.Has("--tls") || given) options.tls = std::move(tls);
  const std::string path = option_or(kTokenOption, "RLK_TOKEN_FILE");
  if (path.empty()) return absl::OkStatus();
  RLK_ASSIGN_OR_RETURN(options.token, ReadToken(path));
  return absl::OkStatus();
}

}  // namespace rlk::cli
