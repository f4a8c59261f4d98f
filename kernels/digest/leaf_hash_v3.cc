#define XXH_INLINE_ALL
#include <xxhash.h>

namespace rlk {

void LeafHashV3(const void* data, size_t bytes, uint8_t* node);

void LeafHashV3(const void* data, size_t bytes, uint8_t* node) {
  XXH128_canonicalFromHash(reinterpret_cast<XXH128_canonical_t*>(node), XXH3_128bits(data, bytes));
}

}  // namespace rlk
