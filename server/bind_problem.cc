#include "server/bind_problem.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_replace.h"
#include "kernels/core/status.h"

namespace rlk::server {

std::string UnixTarget(const std::string& path) {
  return "unix:" + absl::StrReplaceAll(path, {{"%", "%25"}});
}

std::string BindProblem(const std::string& address, std::string otherwise) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found);
  if (error != 0) return gai_strerror(error);
  std::string problem = std::move(otherwise);
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    const int fd = socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    if (bind(fd, entry->ai_addr, entry->ai_addrlen) != 0) problem = strerror(errno);
    close(fd);
  }
  freeaddrinfo(found);
  return problem;
}

absl::Status ListenError(const char* flag, const std::string& address, const std::string& why,
                         std::string_view allowed) {
  return InvalidArgument(Reason::kUnknownOption, flag, address, allowed, "cannot listen: " + why);
}

}  // namespace rlk::server
