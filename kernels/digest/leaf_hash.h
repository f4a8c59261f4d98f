// XXH3_128 of one block, compiled for several instruction sets. The results are equal.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace rlk {

using HashNode = std::array<uint8_t, 16>;

// Canonical (big-endian) bytes of XXH3_128bits(data, bytes), seed 0, default secret.
using LeafHashFn = void (*)(const void* data, size_t bytes, uint8_t* node);

void LeafHashBase(const void* data, size_t bytes, uint8_t* node);
void LeafHashV3(const void* data, size_t bytes, uint8_t* node);

}  // namespace rlk
