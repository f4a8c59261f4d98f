// W3C Trace Context: the `traceparent` header.
#pragma once

#include <optional>
#include <string_view>

namespace rlk::server {

// The 32 hex digits of the trace id in "00-<trace id>-<parent id>-<flags>"; nullopt where the
// header is malformed (it is then ignored, as the recommendation asks). Higher versions are read
// by the fields that version 00 knows.
std::optional<std::string_view> ParseTraceparent(std::string_view header);

}  // namespace rlk::server
