#include "client/cpp/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cpp/transport.h"
#include "kernels/core/status.h"
#include "proto/wire/signatures.h"

namespace rlk::client {
namespace {

constexpr char kAddressForms[] =
    "host:port, unix:/path, ipv4:HOST:PORT,HOST:PORT..., ipv6:[HOST]:PORT,..., dns:///host:port";

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

bool IsHostPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  const std::string port(text.substr(colon + 1));
  const bool digits = !port.empty() && port.size() <= 5 &&
                      port.find_first_not_of("0123456789") == std::string::npos;
  return digits && std::stoi(port) >= 1 && std::stoi(port) <= 65535;
}

// HOST:PORT of each server; empty for a malformed address, and for one of a Unix socket.
std::vector<std::string> HostPorts(const std::string& address) {
  std::string_view rest = address;
  if (StartsWith(rest, "ipv4:") || StartsWith(rest, "ipv6:")) {
    rest.remove_prefix(5);
  } else if (StartsWith(rest, "dns:")) {
    rest.remove_prefix(4);
    if (StartsWith(rest, "///")) rest.remove_prefix(3);
    if (rest.find(',') != std::string_view::npos) return {};
  } else if (rest.find(',') != std::string_view::npos) {
    return {};
  }
  std::vector<std::string> all = absl::StrSplit(absl::string_view(rest.data(), rest.size()), ',');
  for (const std::string& one : all) {
    if (!IsHostPort(one)) return {};
  }
  return all;
}

bool IsLoopback(const std::string& host_port) {
  const std::string host = host_port.substr(0, host_port.rfind(':'));
  return host == "localhost" || host == "[::1]" ||
         (StartsWith(host, "127.") && host.find_first_not_of("0123456789.") == std::string::npos);
}

absl::Status CheckAddress(const std::string& address, bool readable_token) {
  const bool unix_socket = StartsWith(address, "unix:");
  const std::vector<std::string> servers =
      unix_socket ? std::vector<std::string>() : HostPorts(address);
  if (unix_socket ? address.size() == 5 : servers.empty()) {
    return InvalidArgument(Reason::kUnknownOption, "address", address, kAddressForms,
                           "the address is malformed");
  }
  for (const std::string& server : servers) {
    if (!readable_token || IsLoopback(server)) continue;
    return InvalidArgument(Reason::kUnknownOption, "token", {},
                           "TLS, a loopback address, or a Unix socket",
                           "without TLS the token would travel readable to " + server);
  }
  return absl::OkStatus();
}

// The path of a secret is not repeated: it may be the secret itself, given in place of its file.
absl::StatusOr<std::string> ReadPem(const char* field, const std::string& path,
                                    bool secret = false) {
  if (path.empty()) return std::string();
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file && text << file.rdbuf()) return text.str();
  return InvalidArgument(Reason::kUnknownOption, field, secret ? "" : path,
                         "a PEM file that can be read", "the file cannot be read, or is empty");
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> Credentials(const TlsOptions& tls) {
  grpc::SslCredentialsOptions options;
  RLK_ASSIGN_OR_RETURN(options.pem_root_certs, ReadPem("tls.ca_file", tls.ca_file));
  RLK_ASSIGN_OR_RETURN(options.pem_cert_chain, ReadPem("tls.cert_file", tls.cert_file));
  RLK_ASSIGN_OR_RETURN(options.pem_private_key, ReadPem("tls.key_file", tls.key_file, true));
  if (options.pem_cert_chain.empty() != options.pem_private_key.empty()) {
    return InvalidArgument(Reason::kUnknownOption,
                           tls.cert_file.empty() ? "tls.cert_file" : "tls.key_file", {},
                           "both, or neither", "a certificate and its key belong together");
  }
  return grpc::SslCredentials(options);
}

// Spreads calls over the servers that say they serve, and repeats a call that none has begun, or
// that gives the same bits again: operators are pure. Streams and sessions are never repeated.
std::string BalancingConfig() {
  std::string names = R"({"service":"rlk.v1.ServerService"},{"service":"rlk.v1.ParityService"})";
  for (const google::protobuf::FileDescriptor* file : wire::OperatorFiles()) {
    for (int i = 0; i < file->service_count(); ++i) {
      absl::StrAppend(&names, R"(,{"service":")", file->service(i)->full_name(), R"("})");
    }
  }
  return absl::StrCat(
      R"({"loadBalancingConfig":[{"round_robin":{}}],"healthCheckConfig":{"serviceName":""},)",
      R"("methodConfig":[{"name":[)", names,
      R"(],"retryPolicy":{"maxAttempts":4,"initialBackoff":"0.05s","maxBackoff":"1s",)",
      R"("backoffMultiplier":2,"retryableStatusCodes":["UNAVAILABLE"]}}]})");
}

}  // namespace

absl::Status CheckToken(const char* field, const std::string& token) {
  constexpr size_t kTokenBytesMax = 4096;
  if (token.size() <= kTokenBytesMax &&
      token.find_first_not_of(
          "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/=") ==
          std::string::npos) {
    return absl::OkStatus();
  }
  return InvalidArgument(Reason::kUnknownOption, field, {},
                         "letters, digits and -._~+/=, at most 4096 bytes",
                         "the text is no token; a line end does not belong to it");
}

bool NamesSeveral(const std::string& address) {
  const bool list = StartsWith(address, "ipv4:") || StartsWith(address, "ipv6:");
  return StartsWith(address, "dns:") || (list && address.find(',') != std::string::npos);
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& address,
                                                           const ClientOptions& options) {
  RLK_RETURN_IF_ERROR(CheckToken("token", options.token));
  RLK_RETURN_IF_ERROR(CheckToken("session_token", options.session_token));
  RLK_RETURN_IF_ERROR(CheckAddress(address, !options.token.empty() && !options.tls));
  grpc::ChannelArguments arguments;
  // Neither tensors nor a token without TLS go through an HTTP proxy of the environment.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (options.own_connection) arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  if (NamesSeveral(address)) {
    arguments.SetServiceConfigJSON(BalancingConfig());
    // gRPC's own bound ends retries of requests above 256 KiB.
    arguments.SetInt(GRPC_ARG_PER_RPC_RETRY_BUFFER_SIZE,
                     static_cast<int>(2 * options.inline_bytes_max));
  }
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (options.tls) {
    RLK_ASSIGN_OR_RETURN(credentials, Credentials(*options.tls));
    if (!options.tls->server_name.empty()) {
      arguments.SetSslTargetNameOverride(options.tls->server_name);
    }
  }
  return grpc::CreateCustomChannel(ChannelTarget(address), credentials, arguments);
}

}  // namespace rlk::client
