#include "tests/integration/http2_bytes.h"

#include <algorithm>

namespace rlk::test {
namespace {

std::string BigEndian(uint64_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) text.push_back(static_cast<char>(value >> (8 * i)));
  return text;
}

// Literals of up to 126 bytes have a length of one byte.
std::string Literal(const std::string& text) { return BigEndian(text.size(), 1) + text; }

constexpr size_t kFrameBytesMax = 16384;

}  // namespace

std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload) {
  return BigEndian(payload.size(), 3) + BigEndian(type, 1) + BigEndian(flags, 1) +
         BigEndian(stream, 4) + payload;
}

std::string Preface() { return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettings, 0, 0, ""); }

std::string RequestHeaders(const std::string& path, const std::string& timeout) {
  // POST and http of the static table; :path, :authority and content-type have their names there.
  std::string block = "\x83\x86\x04";
  block += Literal(path);
  block += "\x01";
  block += Literal("localhost");
  block += "\x0f\x10";
  block += Literal("application/grpc");
  block.push_back('\0');
  block += Literal("te");
  block += Literal("trailers");
  if (!timeout.empty()) {
    block.push_back('\0');
    block += Literal("grpc-timeout");
    block += Literal(timeout);
  }
  return block;
}

std::string GrpcMessage(const std::string& message) {
  std::string data(1, '\0');
  data += BigEndian(message.size(), 4);
  data += message;
  return data;
}

std::string UnaryCall(uint32_t stream, const std::string& path, const std::string& message) {
  std::string bytes = Frame(kHeaders, kEndHeaders, stream, RequestHeaders(path));
  const std::string data = GrpcMessage(message);
  for (size_t at = 0; at < data.size(); at += kFrameBytesMax) {
    const bool last = at + kFrameBytesMax >= data.size();
    bytes += Frame(kData, last ? kEndStream : 0, stream, data.substr(at, kFrameBytesMax));
  }
  return bytes;
}

}  // namespace rlk::test
