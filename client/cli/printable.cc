#include "client/cli/printable.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "proto/wire/utf8.h"

namespace rlk::cli {
namespace {

// Bytes of the UTF-8 sequence at the start of `text`; 0 where there is none.
size_t SequenceSize(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  const size_t size = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  return size <= text.size() && wire::IsUtf8(text.substr(0, size)) ? size : 0;
}

bool Steers(std::string_view sequence) {
  if (sequence.size() == 1) {
    const auto byte = static_cast<uint8_t>(sequence[0]);
    return byte < 0x20 || byte == 0x7f;
  }
  // U+0080 .. U+009F; U+200E, U+200F, U+202A .. U+202E, U+2066 .. U+2069, U+2028, U+2029, U+061C.
  if (sequence.size() == 2) {
    return (sequence[0] == '\xc2' && static_cast<uint8_t>(sequence[1]) < 0xa0) ||
           sequence == "\xd8\x9c";
  }
  if (sequence.size() == 3 && sequence[0] == '\xe2') {
    const auto last = static_cast<uint8_t>(sequence[2]);
    if (sequence[1] == '\x80')
      return last == 0x8e || last == 0x8f || (last >= 0xa8 && last <= 0xae);
    return sequence[1] == '\x81' && last >= 0xa6 && last <= 0xa9;
  }
  return false;
}

std::string Replace(std::string_view text, bool keep_line_ends) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t known = SequenceSize(text);
    const std::string_view sequence = text.substr(0, std::max<size_t>(known, 1));
    text.remove_prefix(sequence.size());
    if (known > 0 && (!Steers(sequence) || (keep_line_ends && sequence == "\n"))) {
      out.append(sequence);
      continue;
    }
    for (const char c : sequence) {
      const auto byte = static_cast<uint8_t>(c);
      out.append({'\\', 'x', kHex[byte >> 4], kHex[byte & 15]});
    }
  }
  return out;
}

}  // namespace

std::string Printable(std::string_view text) { return Replace(text, false); }

std::string PrintableLines(std::string_view text) { return Replace(text, true); }

}  // namespace rlk::cli
