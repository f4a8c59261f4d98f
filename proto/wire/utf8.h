// UTF-8 as proto3 strings must have it: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rlk::wire {

inline bool IsUtf8(std::string_view text) {
  const auto byte = [text](size_t i) -> uint32_t {
    return i < text.size() ? static_cast<uint8_t>(text[i]) : 0;
  };
  const auto tail = [&byte](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  for (size_t i = 0; i < text.size();) {
    const uint32_t lead = byte(i);
    if (lead < 0x80) {
      i += 1;
    } else if (lead >= 0xc2 && lead <= 0xdf && tail(i + 1)) {
      i += 2;
    } else if ((lead & 0xf0) == 0xe0 && tail(i + 1) && tail(i + 2)) {
      const uint32_t code = (lead & 0xf) << 12 | (byte(i + 1) & 0x3f) << 6 | (byte(i + 2) & 0x3f);
      if (code < 0x800 || (code >= 0xd800 && code <= 0xdfff)) return false;
      i += 3;
    } else if (lead >= 0xf0 && lead <= 0xf4 && tail(i + 1) && tail(i + 2) && tail(i + 3)) {
      const uint32_t high = (lead & 7) << 6 | (byte(i + 1) & 0x3f);  // of the code, without 12 bits
      if (high < 0x10 || high > 0x10f) return false;
      i += 4;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace rlk::wire
