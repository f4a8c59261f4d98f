#include "server/sessions/random_id.h"

#include <sys/random.h>
#include <sys/types.h>

namespace rlk::server {

std::string RandomId() {
  constexpr size_t kBytes = 16;
  std::string bytes(kBytes, '\0');
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = getrandom(bytes.data() + filled, bytes.size() - filled, 0);
    if (got > 0) filled += static_cast<size_t>(got);
  }
  return bytes;
}

std::string HexText(std::string_view bytes) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += {kHex[byte >> 4], kHex[byte & 15]};
  }
  return text;
}

}  // namespace rlk::server
