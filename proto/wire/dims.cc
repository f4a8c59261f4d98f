#include "proto/wire/dims.h"

#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/core/tensor_view.h"

namespace rlk::wire {
namespace {

std::optional<int64_t> ParseInteger(absl::string_view text) {
  if (text.empty() || text.size() > 10 || text[0] == '0') return std::nullopt;
  for (const char c : text) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return std::nullopt;
  }
  int32_t value;
  if (!absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

std::optional<char> ParseLetter(absl::string_view text) {
  if (text.size() != 1 || !absl::ascii_isalpha(static_cast<unsigned char>(text[0]))) {
    return std::nullopt;
  }
  return text[0];
}

// A name of two letters or more.
bool IsAttributeName(absl::string_view text) {
  if (text.size() < 2 || !absl::ascii_islower(static_cast<unsigned char>(text[0]))) return false;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (!absl::ascii_islower(u) && !absl::ascii_isdigit(u) && c != '_') return false;
  }
  return true;
}

std::optional<DimPattern> ParseDim(absl::string_view text) {
  if (const auto letter = ParseLetter(text)) return DimPattern{1, *letter};
  if (IsAttributeName(text)) return DimPattern{1, 0, -1, std::string(text)};
  const size_t star = text.find('*');
  const auto integer = ParseInteger(text.substr(0, star));
  if (!integer.has_value()) return std::nullopt;
  if (star == absl::string_view::npos) return DimPattern{*integer, 0};
  const auto letter = ParseLetter(text.substr(star + 1));
  if (!letter.has_value() || *integer < 2) return std::nullopt;
  return DimPattern{*integer, *letter};
}

}  // namespace

absl::StatusOr<DimsPattern> ParseDims(std::string_view text) {
  DimsPattern pattern;
  if (text.empty()) return pattern;
  bool first = true;
  for (const absl::string_view entry :
       absl::StrSplit(absl::string_view(text.data(), text.size()), ',')) {
    if (entry == "..." && first) {
      pattern.leading = true;
    } else if (const auto dim = ParseDim(entry)) {
      pattern.dims.push_back(*dim);
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("dims entry \"", entry,
                       "\" is not an integer, a letter, INTEGER*LETTER, an attribute or a leading "
                       "\"...\""));
    }
    first = false;
  }
  if (pattern.dims.size() > kMaxRank) {
    return absl::InvalidArgumentError(
        absl::StrCat("dims have ", pattern.dims.size(), " entries, at most ", kMaxRank));
  }
  return pattern;
}

}  // namespace rlk::wire
