// Addresses that a server listens at, and what it says of those that are open to others.
#pragma once

#include <string>

#include "server/log/log.h"
#include "server/options.h"

namespace rlk::server {

// HOST:PORT. A colon in the host would be a scheme of gRPC's ("unix:") unless brackets say that it
// is IPv6.
bool IsListenAddress(const std::string& address);

// Of a listen address: only this host reaches it.
bool IsLoopback(const std::string& address);

// A warning for each TCP address that other hosts reach and where nobody is asked who they are, or
// what is said can be read on the way.
void WarnOfOpenListeners(const Options& options, const Logger& logger);

}  // namespace rlk::server
