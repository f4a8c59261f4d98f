#include "server/rpc/trace_context.h"

namespace rlk::server {
namespace {

constexpr size_t kVersion00Bytes = 55;

bool IsLowerHex(std::string_view text) {
  for (const char c : text) {
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
  }
  return true;
}

bool IsZero(std::string_view text) { return text.find_first_not_of('0') == std::string_view::npos; }

}  // namespace

std::optional<std::string_view> ParseTraceparent(std::string_view header) {
  if (header.size() < kVersion00Bytes) return std::nullopt;
  if (header[2] != '-' || header[35] != '-' || header[52] != '-') return std::nullopt;
  const std::string_view version = header.substr(0, 2);
  const std::string_view trace = header.substr(3, 32);
  const std::string_view parent = header.substr(36, 16);
  if (!IsLowerHex(version) || !IsLowerHex(trace) || !IsLowerHex(parent) ||
      !IsLowerHex(header.substr(53, 2))) {
    return std::nullopt;
  }
  if (version == "ff" || IsZero(trace) || IsZero(parent)) return std::nullopt;
  if (version == "00" && header.size() != kVersion00Bytes) return std::nullopt;
  if (header.size() > kVersion00Bytes && header[kVersion00Bytes] != '-') return std::nullopt;
  return trace;
}

}  // namespace rlk::server
