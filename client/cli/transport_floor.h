// The floors of `rlk bench transport`: what the host can do with bytes when no rlk is in the way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace rlk::cli {

// Seconds to copy `bytes` with one thread, the destination warm.
double MemcpySeconds(std::span<const std::byte> from, std::span<std::byte> to);

// A process of its own that reads from a bare Unix socket (SOCK_STREAM) into memory that it has
// touched, and answers one byte for each `bytes`.
class SocketSink {
 public:
  static absl::StatusOr<SocketSink> Start(int64_t bytes);
  SocketSink(SocketSink&& other) noexcept;
  SocketSink& operator=(SocketSink&&) = delete;
  ~SocketSink();

  // Seconds from the first byte sent to the answer.
  absl::StatusOr<double> Send(std::span<const std::byte> bytes) const;

 private:
  SocketSink(int descriptor, int process) : descriptor_(descriptor), process_(process) {}

  int descriptor_;
  int process_;
};

// `rlk __socket-sink BYTES`: not for users. Reads from descriptor 0 until it ends.
inline constexpr char kSocketSinkCommand[] = "__socket-sink";
int RunSocketSink(int64_t bytes);

}  // namespace rlk::cli
