// The hash that the device's digest is made of, in its host build, against libxxhash.
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/digest/xxh3_leaf.h"

namespace rlk::xxh3 {
namespace {

std::vector<uint8_t> RandomBytes(size_t size) {
  std::mt19937_64 generator(20240607);
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(generator());
  return bytes;
}

void ExpectEqualHash(const uint8_t* data, int length) {
  const Hash128 hash = Hash(data, length);
  const XXH128_hash_t expected = XXH3_128bits(data, static_cast<size_t>(length));
  ASSERT_EQ(hash.low, expected.low64) << "length " << length;
  ASSERT_EQ(hash.high, expected.high64) << "length " << length;
}

TEST(DeviceHash, EqualsLibraryForEveryLengthOfALeaf) {
  const std::vector<uint8_t> bytes = RandomBytes(4096);
  for (int length = 0; length <= 4096; ++length) ExpectEqualHash(bytes.data(), length);
}

TEST(DeviceHash, EqualsLibraryAtUnalignedAddresses) {
  const std::vector<uint8_t> bytes = RandomBytes(4096 + 16);
  for (int offset = 1; offset < 16; ++offset) {
    for (int length : {3, 8, 16, 17, 128, 129, 240, 241, 1024, 1025, 2047, 4095, 4096}) {
      ExpectEqualHash(bytes.data() + offset, length);
    }
  }
}

TEST(DeviceHash, EqualsLibraryForExtremeBytes) {
  for (uint8_t value : {uint8_t{0x00}, uint8_t{0xff}, uint8_t{0x80}}) {
    const std::vector<uint8_t> bytes(4096, value);
    for (int length = 0; length <= 4096; length += 7) ExpectEqualHash(bytes.data(), length);
  }
}

// The way the kernel cuts a leaf: four pairs of accumulators, each hashed on its own.
TEST(DeviceHash, PairsOfLanesHashAlone) {
  const std::vector<uint8_t> bytes = RandomBytes(4096);
  Hash128 merged = {0, 0};
  for (int pair = 0; pair < kLanes / 2; ++pair) {
    uint64_t even = InitialLane(2 * pair), odd = InitialLane(2 * pair + 1);
    for (int stripe = 0; stripe < 64; ++stripe) {
      const uint8_t* data = bytes.data() + 64 * stripe + 16 * pair;
      const int secret =
          stripe == 63 ? kSecretBytes - kStripeBytes - 7 : 8 * (stripe % kStripesPerBlock);
      AccumulatePair(even, odd, Read64(data), Read64(data + 8), Secret(secret + 16 * pair),
                     Secret(secret + 16 * pair + 8));
      if (stripe % kStripesPerBlock == kStripesPerBlock - 1 && stripe != 63) {
        even = Scramble(even, Secret(128 + 16 * pair));
        odd = Scramble(odd, Secret(136 + 16 * pair));
      }
    }
    const Hash128 products = MergePair(even, odd, pair);
    merged.low += products.low;
    merged.high += products.high;
  }
  const Hash128 hash = FinishLong(merged, 4096);
  const XXH128_hash_t expected = XXH3_128bits(bytes.data(), bytes.size());
  EXPECT_EQ(hash.low, expected.low64);
  EXPECT_EQ(hash.high, expected.high64);
}

}  // namespace
}  // namespace rlk::xxh3
