// Parts of a workspace stand one behind the other.
#pragma once

#include <cstdint>

namespace rlk::linear {

// The bytes of a part, so that the next one is aligned for every access and copy.
constexpr int64_t AlignWorkspace(int64_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace rlk::linear
