// JSON of files that others wrote.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace rlk::cli {

// The object of a text; nothing, and `what` is wrong with it, where it is none, nests deeper than 4
// or gives a key twice. Its kind is a map: the ordered one looks at every key for each new one, and
// a file may have a million.
std::optional<nlohmann::json> ParseStrict(const std::string& text, std::string& what);

}  // namespace rlk::cli
