// Reproducible numbers by position: element i of a stream depends on the seed and i alone, so any
// language and any order of evaluation make the same bytes. client/cli/README.md states the
// formulas
// ("random:SHAPE:DTYPE:SEED"); tests/golden/random_vectors.json holds vectors.
#pragma once

#include <cstdint>

namespace rlk {

// 64 random bits of position i: SplitMix64.
constexpr uint64_t RandomBits(uint64_t seed, uint64_t i) {
  uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15u;
  z ^= z >> 30;
  z *= 0xbf58476d1ce4e5b9u;
  z ^= z >> 27;
  z *= 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Nearly normal, standard deviation 1: the sum of four uniform 16-bit integers, centred.
constexpr double NearlyNormal(uint64_t bits) {
  const int64_t sum = static_cast<int64_t>((bits & 0xffff) + ((bits >> 16) & 0xffff) +
                                           ((bits >> 32) & 0xffff) + (bits >> 48)) -
                      131070;
  return static_cast<double>(sum) / 37837.0;
}

}  // namespace rlk
