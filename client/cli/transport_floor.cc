#include "client/cli/transport_floor.h"

#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "client/cli/timing.h"

extern char** environ;

namespace rlk::cli {

double MemcpySeconds(std::span<const std::byte> from, std::span<std::byte> to) {
  const auto begin = Clock::now();
  std::memcpy(to.data(), from.data(), from.size());
  return SecondsSince(begin);
}

absl::StatusOr<SocketSink> SocketSink::Start(int64_t bytes) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::InternalError("cannot make a socket pair");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  std::string name = "rlk", command = kSocketSinkCommand, size = std::to_string(bytes);
  char* const argv[] = {name.data(), command.data(), size.data(), nullptr};
  pid_t process = -1;
  const int error = posix_spawn(&process, "/proc/self/exe", &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  SocketSink sink(ends[0], error == 0 ? process : -1);
  if (error != 0) return absl::InternalError("cannot start the sink of the bare socket");
  char ready = 0;
  if (read(sink.descriptor_, &ready, 1) != 1) {
    return absl::InternalError("the sink of the bare socket did not start");
  }
  return sink;
}

SocketSink::SocketSink(SocketSink&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      process_(std::exchange(other.process_, -1)) {}

SocketSink::~SocketSink() {
  if (descriptor_ >= 0) close(descriptor_);
  if (process_ <= 0) return;
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

absl::StatusOr<double> SocketSink::Send(std::span<const std::byte> bytes) const {
  const auto begin = Clock::now();
  while (!bytes.empty()) {
    const ssize_t sent = send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return absl::InternalError("the bare socket broke");
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
  char answer = 0;
  if (read(descriptor_, &answer, 1) != 1) return absl::InternalError("the bare socket broke");
  return SecondsSince(begin);
}

int RunSocketSink(int64_t bytes) {
  const std::unique_ptr<char[]> memory(new char[static_cast<size_t>(bytes)]);
  std::memset(memory.get(), 1, static_cast<size_t>(bytes));
  const char answer = 1;
  if (write(STDIN_FILENO, &answer, 1) != 1) return 1;
  for (;;) {
    for (int64_t at = 0; at < bytes;) {
      const ssize_t got = read(STDIN_FILENO, memory.get() + at, static_cast<size_t>(bytes - at));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return 0;
      at += got;
    }
    if (write(STDIN_FILENO, &answer, 1) != 1) return 0;
  }
}

}  // namespace rlk::cli
