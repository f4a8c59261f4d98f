// Why an address cannot be listened on, for gRPC says only that it could not.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace rlk::server {

// The target of a path: gRPC takes %41 for A, even where it is the name of a file.
std::string UnixTarget(const std::string& path);

// What a bind of our own to HOST:PORT meets; `otherwise` where it can be had.
std::string BindProblem(const std::string& address, std::string otherwise);

// INVALID_ARGUMENT (kUnknownOption) naming the flag.
absl::Status ListenError(const char* flag, const std::string& address, const std::string& why,
                         std::string_view allowed = "an address that is free");

}  // namespace rlk::server
