// Numbers from text: the whole text or nothing.
#pragma once

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>

namespace rlk::cli {

template <typename T>
std::optional<T> ParseInteger(const std::string& text) {
  T value = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

// Decimal, hexadecimal ("0x1.8p3"), "nan", "inf". A text whose value is not zero but below FP64's
// smallest, or finite but above its largest, is none.
inline std::optional<double> ParseNumber(const std::string& text) {
  if (text.empty() || std::isspace(static_cast<unsigned char>(text[0]))) return std::nullopt;
  char* end = nullptr;
  errno = 0;
  const double value = std::strtod(text.c_str(), &end);
  if (end != text.c_str() + text.size()) return std::nullopt;
  if (errno == ERANGE && (value == 0 || std::isinf(value))) return std::nullopt;
  return value;
}

}  // namespace rlk::cli
