// JSON text, as far as log lines and the address line need it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rlk::server {

// Appends `text` as a JSON string. Bytes that are not UTF-8 become U+FFFD.
void AppendJsonString(std::string_view text, std::string& out);

std::string JsonString(std::string_view text);
std::string JsonArray(const std::vector<std::string>& texts);

}  // namespace rlk::server
