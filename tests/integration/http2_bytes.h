// HTTP/2 by hand, for clients that no library would let us be.
#pragma once

#include <cstdint>
#include <string>

namespace rlk::test {

enum Http2Frame : uint8_t {
  kData = 0,
  kHeaders = 1,
  kRstStream = 3,
  kSettings = 4,
  kPing = 6,
  kWindowUpdate = 8
};
inline constexpr uint8_t kEndStream = 1, kEndHeaders = 4;

std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload);

// The connection preface and empty settings.
std::string Preface();

// The header block of a gRPC request, without dynamic table or Huffman code. `timeout` is the value
// of grpc-timeout ("1m" is a millisecond).
std::string RequestHeaders(const std::string& path, const std::string& timeout = "");

// The message with its length prefix.
std::string GrpcMessage(const std::string& message);

// HEADERS and DATA of a whole unary call.
std::string UnaryCall(uint32_t stream, const std::string& path, const std::string& message);

}  // namespace rlk::test
