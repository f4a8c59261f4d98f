// Names that nobody can guess.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace rlk::server {

// 16 bytes of the system's randomness.
std::string RandomId();

// Lower-case hex.
std::string HexText(std::string_view bytes);

}  // namespace rlk::server
