// The channel to a server, or to several: address, TLS, balancing. Internal.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"

namespace rlk::client {

// True for addresses that may stand for several servers: calls are spread over them.
bool NamesSeveral(const std::string& address);

// INVALID_ARGUMENT naming `field` for what cannot stand in a header; empty is none, and good. gRPC
// ends the process at a header that it cannot send, and logs it first.
absl::Status CheckToken(const char* field, const std::string& token);

// INVALID_ARGUMENT for a malformed address or token, a file of options.tls that cannot be read, or
// a token that would travel readable to another host.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& address,
                                                           const ClientOptions& options);

}  // namespace rlk::client
