// XXH3_128 (seed 0, default secret) from its published specification, for host and device: what
// the leaves and nodes of the tensor digest are made with. Any length up to 4096 bytes.
// https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define RLK_XXH_HD static __host__ __device__ __forceinline__
#else
#define RLK_XXH_HD static inline
#endif
#if defined(__CUDA_ARCH__)
#define RLK_XXH_UNROLL _Pragma("unroll")
#else
#define RLK_XXH_UNROLL
#endif

namespace rlk::xxh3 {

inline constexpr uint32_t kPrime32_1 = 0x9E3779B1u;
inline constexpr uint32_t kPrime32_2 = 0x85EBCA77u;
inline constexpr uint32_t kPrime32_3 = 0xC2B2AE3Du;
inline constexpr uint64_t kPrime64_1 = 0x9E3779B185EBCA87ull;
inline constexpr uint64_t kPrime64_2 = 0xC2B2AE3D27D4EB4Full;
inline constexpr uint64_t kPrime64_3 = 0x165667B19E3779F9ull;
inline constexpr uint64_t kPrime64_4 = 0x85EBCA77C2B2AE63ull;
inline constexpr uint64_t kPrime64_5 = 0x27D4EB2F165667C5ull;
inline constexpr uint64_t kPrimeMx1 = 0x165667919E3779F9ull;
inline constexpr uint64_t kPrimeMx2 = 0x9FB21C651E98DF25ull;

inline constexpr int kStripeBytes = 64;
inline constexpr int kStripesPerBlock = 16;  // (192 - 64) / 8
inline constexpr int kBlockBytes = kStripeBytes * kStripesPerBlock;
inline constexpr int kLanes = 8;
inline constexpr int kSecretBytes = 192;

// Tables, in constant memory on the device: an array inside a function would be rebuilt on the
// stack wherever its index is not a constant.
#define RLK_XXH_SECRET_WORDS                                                                      \
  0xbe4ba423396cfeb8ull, 0x1cad21f72c81017cull, 0xdb979083e96dd4deull, 0x1f67b3b7a4a44072ull,     \
      0x78e5c0cc4ee679cbull, 0x2172ffcc7dd05a82ull, 0x8e2443f7744608b8ull, 0x4c263a81e69035e0ull, \
      0xcb00c391bb52283cull, 0xa32e531b8b65d088ull, 0x4ef90da297486471ull, 0xd8acdea946ef1938ull, \
      0x3f349ce33f76faa8ull, 0x1d4f0bc7c7bbdcf9ull, 0x3159b4cd4be0518aull, 0x647378d9c97e9fc8ull, \
      0xc3ebd33483acc5eaull, 0xeb6313faffa081c5ull, 0x49daf0b751dd0d17ull, 0x9e68d429265516d3ull, \
      0xfca1477d58be162bull, 0xce31d07ad1b8f88full, 0x280416958f3acb45ull, 0x7e404bbbcafbd7afull
#define RLK_XXH_INITIAL_LANES \
  kPrime32_3, kPrime64_1, kPrime64_2, kPrime64_3, kPrime64_4, kPrime32_2, kPrime64_5, kPrime32_1

inline constexpr uint64_t kSecretWords[kSecretBytes / 8] = {RLK_XXH_SECRET_WORDS};
inline constexpr uint64_t kInitialLanes[kLanes] = {RLK_XXH_INITIAL_LANES};
#if defined(__CUDACC__)
static __constant__ uint64_t kDeviceSecretWords[kSecretBytes / 8] = {RLK_XXH_SECRET_WORDS};
static __constant__ uint64_t kDeviceInitialLanes[kLanes] = {RLK_XXH_INITIAL_LANES};
#endif
#undef RLK_XXH_SECRET_WORDS
#undef RLK_XXH_INITIAL_LANES

// 64 bits of the default secret that begin at byte `offset`.
RLK_XXH_HD uint64_t Secret(int offset) {
#if defined(__CUDA_ARCH__)
  const uint64_t* const words = kDeviceSecretWords;
#else
  const uint64_t* const words = kSecretWords;
#endif
  const int word = offset >> 3;
  const int shift = (offset & 7) * 8;
  if (shift == 0) return words[word];
  return words[word] >> shift | words[word + 1] << (64 - shift);
}

RLK_XXH_HD uint64_t InitialLane(int lane) {
#if defined(__CUDA_ARCH__)
  return kDeviceInitialLanes[lane];
#else
  return kInitialLanes[lane];
#endif
}

struct Hash128 {
  uint64_t low;
  uint64_t high;
};

RLK_XXH_HD uint64_t Swap64(uint64_t x) {
#if defined(__CUDA_ARCH__)
  const uint32_t low = __byte_perm(static_cast<uint32_t>(x), 0, 0x0123);
  const uint32_t high = __byte_perm(static_cast<uint32_t>(x >> 32), 0, 0x0123);
  return static_cast<uint64_t>(low) << 32 | high;
#else
  return __builtin_bswap64(x);
#endif
}
RLK_XXH_HD uint32_t Swap32(uint32_t x) {
  return x >> 24 | (x >> 8 & 0xff00u) | (x << 8 & 0xff0000u) | x << 24;
}

// Little-endian loads from any address.
RLK_XXH_HD uint32_t Read32(const uint8_t* p) {
  return static_cast<uint32_t>(p[0]) | static_cast<uint32_t>(p[1]) << 8 |
         static_cast<uint32_t>(p[2]) << 16 | static_cast<uint32_t>(p[3]) << 24;
}
RLK_XXH_HD uint64_t Read64(const uint8_t* p) {
#if defined(__CUDA_ARCH__)
  if (reinterpret_cast<uintptr_t>(p) % 8 == 0) return *reinterpret_cast<const uint64_t*>(p);
#endif
  return static_cast<uint64_t>(Read32(p)) | static_cast<uint64_t>(Read32(p + 4)) << 32;
}

RLK_XXH_HD Hash128 Multiply64(uint64_t a, uint64_t b) {
#if defined(__CUDA_ARCH__)
  return {a * b, __umul64hi(a, b)};
#else
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return {static_cast<uint64_t>(product), static_cast<uint64_t>(product >> 64)};
#endif
}
RLK_XXH_HD uint64_t FoldProduct(uint64_t a, uint64_t b) {
  const Hash128 product = Multiply64(a, b);
  return product.low ^ product.high;
}

RLK_XXH_HD uint64_t Avalanche(uint64_t h) {
  h ^= h >> 37;
  h *= kPrimeMx1;
  return h ^ h >> 32;
}
RLK_XXH_HD uint64_t Avalanche64(uint64_t h) {  // XXH64's
  h ^= h >> 33;
  h *= kPrime64_2;
  h ^= h >> 29;
  h *= kPrime64_3;
  return h ^ h >> 32;
}

// One stripe for the lanes 2p and 2p + 1, which feed each other.
RLK_XXH_HD void AccumulatePair(uint64_t& even, uint64_t& odd, uint64_t even_data, uint64_t odd_data,
                               uint64_t even_secret, uint64_t odd_secret) {
  const uint64_t even_key = even_data ^ even_secret;
  const uint64_t odd_key = odd_data ^ odd_secret;
  even += odd_data + (even_key & 0xffffffffu) * (even_key >> 32);
  odd += even_data + (odd_key & 0xffffffffu) * (odd_key >> 32);
}

// After each full block.
RLK_XXH_HD uint64_t Scramble(uint64_t lane, uint64_t secret) {
  return (lane ^ lane >> 47 ^ secret) * kPrime32_1;
}

// The two products that lanes 2p and 2p + 1 give to the low and the high half of the result.
RLK_XXH_HD Hash128 MergePair(uint64_t even, uint64_t odd, int pair) {
  return {FoldProduct(even ^ Secret(11 + 16 * pair), odd ^ Secret(19 + 16 * pair)),
          FoldProduct(even ^ Secret(kSecretBytes - 64 - 11 + 16 * pair),
                      odd ^ Secret(kSecretBytes - 64 - 3 + 16 * pair))};
}

// From the sums of the four pairs.
RLK_XXH_HD Hash128 FinishLong(Hash128 merged, uint64_t length) {
  return {Avalanche(length * kPrime64_1 + merged.low),
          Avalanche(~(length * kPrime64_2) + merged.high)};
}

RLK_XXH_HD Hash128 HashUpTo16(const uint8_t* p, int length) {
  if (length > 8) {
    const uint64_t flip_low = Secret(32) ^ Secret(40);
    const uint64_t flip_high = Secret(48) ^ Secret(56);
    const uint64_t first = Read64(p);
    uint64_t last = Read64(p + length - 8);
    Hash128 m = Multiply64(first ^ last ^ flip_low, kPrime64_1);
    m.low += static_cast<uint64_t>(length - 1) << 54;
    last ^= flip_high;
    m.high += last + (last & 0xffffffffu) * static_cast<uint64_t>(kPrime32_2 - 1);
    m.low ^= Swap64(m.high);
    Hash128 h = Multiply64(m.low, kPrime64_2);
    h.high += m.high * kPrime64_2;
    return {Avalanche(h.low), Avalanche(h.high)};
  }
  if (length >= 4) {
    const uint32_t first = Read32(p);
    const uint32_t last = Read32(p + length - 4);
    const uint64_t keyed =
        (first + (static_cast<uint64_t>(last) << 32)) ^ (Secret(16) ^ Secret(24));
    Hash128 m = Multiply64(keyed, kPrime64_1 + (static_cast<uint64_t>(length) << 2));
    m.high += m.low << 1;
    m.low ^= m.high >> 3;
    m.low ^= m.low >> 35;
    m.low *= kPrimeMx2;
    m.low ^= m.low >> 28;
    return {m.low, Avalanche(m.high)};
  }
  if (length > 0) {
    const uint32_t combined =
        static_cast<uint32_t>(p[0]) << 16 | static_cast<uint32_t>(p[length >> 1]) << 24 |
        static_cast<uint32_t>(p[length - 1]) | static_cast<uint32_t>(length) << 8;
    const uint32_t swapped = Swap32(combined);
    const uint32_t rotated = swapped << 13 | swapped >> 19;
    const auto low32 = [](int offset) { return static_cast<uint32_t>(Secret(offset)); };
    const auto high32 = [](int offset) { return static_cast<uint32_t>(Secret(offset) >> 32); };
    return {Avalanche64(combined ^ static_cast<uint64_t>(low32(0) ^ high32(0))),
            Avalanche64(rotated ^ static_cast<uint64_t>(low32(8) ^ high32(8)))};
  }
  return {Avalanche64(Secret(64) ^ Secret(72)), Avalanche64(Secret(80) ^ Secret(88))};
}

RLK_XXH_HD uint64_t Mix16(const uint8_t* p, int secret) {
  return FoldProduct(Read64(p) ^ Secret(secret), Read64(p + 8) ^ Secret(secret + 8));
}
RLK_XXH_HD void Mix32(Hash128& acc, const uint8_t* a, const uint8_t* b, int secret) {
  acc.low += Mix16(a, secret);
  acc.low ^= Read64(b) + Read64(b + 8);
  acc.high += Mix16(b, secret + 16);
  acc.high ^= Read64(a) + Read64(a + 8);
}
RLK_XXH_HD Hash128 FinishMedium(const Hash128& acc, int length) {
  const uint64_t low = acc.low + acc.high;
  const uint64_t high =
      acc.low * kPrime64_1 + acc.high * kPrime64_4 + static_cast<uint64_t>(length) * kPrime64_2;
  return {Avalanche(low), 0 - Avalanche(high)};
}

RLK_XXH_HD Hash128 Hash17To240(const uint8_t* p, int length) {
  Hash128 acc = {static_cast<uint64_t>(length) * kPrime64_1, 0};
  if (length <= 128) {
    for (int i = (length - 1) / 32; i >= 0; --i) {
      Mix32(acc, p + 16 * i, p + length - 16 * (i + 1), 32 * i);
    }
    return FinishMedium(acc, length);
  }
  for (int i = 32; i < 160; i += 32) Mix32(acc, p + i - 32, p + i - 16, i - 32);
  acc = {Avalanche(acc.low), Avalanche(acc.high)};
  for (int i = 160; i <= length; i += 32) Mix32(acc, p + i - 32, p + i - 16, 3 + i - 160);
  Mix32(acc, p + length - 16, p + length - 32, 136 - 17 - 16);
  return FinishMedium(acc, length);
}

RLK_XXH_HD void AccumulateStripe(uint64_t (&lanes)[kLanes], const uint8_t* data, int secret) {
  RLK_XXH_UNROLL
  for (int i = 0; i < kLanes; i += 2) {
    AccumulatePair(lanes[i], lanes[i + 1], Read64(data + 8 * i), Read64(data + 8 * i + 8),
                   Secret(secret + 8 * i), Secret(secret + 8 * i + 8));
  }
}

RLK_XXH_HD Hash128 HashLong(const uint8_t* p, int length) {
  uint64_t lanes[kLanes];
  RLK_XXH_UNROLL
  for (int i = 0; i < kLanes; ++i) lanes[i] = InitialLane(i);
  const int stripes = (length - 1) / kStripeBytes;
  for (int stripe = 0; stripe < stripes; ++stripe) {
    const int in_block = stripe % kStripesPerBlock;
    AccumulateStripe(lanes, p + stripe * kStripeBytes, 8 * in_block);
    if (in_block == kStripesPerBlock - 1) {
      RLK_XXH_UNROLL
      for (int i = 0; i < kLanes; ++i) {
        lanes[i] = Scramble(lanes[i], Secret(kSecretBytes - kStripeBytes + 8 * i));
      }
    }
  }
  AccumulateStripe(lanes, p + length - kStripeBytes, kSecretBytes - kStripeBytes - 7);
  Hash128 merged = {0, 0};
  RLK_XXH_UNROLL
  for (int pair = 0; pair < kLanes / 2; ++pair) {
    const Hash128 products = MergePair(lanes[2 * pair], lanes[2 * pair + 1], pair);
    merged.low += products.low;
    merged.high += products.high;
  }
  return FinishLong(merged, static_cast<uint64_t>(length));
}

// Of `length` bytes, 0 to 4096, at any address.
RLK_XXH_HD Hash128 Hash(const uint8_t* p, int length) {
  if (length <= 16) return HashUpTo16(p, length);
  if (length <= 240) return Hash17To240(p, length);
  return HashLong(p, length);
}

}  // namespace rlk::xxh3
