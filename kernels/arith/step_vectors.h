// Operands and accumulators of tensor-core steps, drawn with the same bits on host and device: for
// the known answers of a backend and for the tests of the law.
#pragma once

#include <cstdint>

#include "kernels/arith/convert.h"
#include "kernels/arith/tensor_step.h"

namespace rlk::arith {

enum class StepData : int32_t {
  kNormals,
  kBinades24,
  kBinades120,
  kSubnormalResults,
  kRandomFinite,
  kHalfZeros,
  kSubnormalTimesLarge,
  kOverflow,
  kCancellation,
  kSpecials,
  kAroundTheCut,
  kMaximalProducts,
  kTinyProductsZeroC,
  kZerosBesideTiny,
};
inline constexpr int kStepDataCount = 14;
inline constexpr const char* kStepDataNames[kStepDataCount] = {
    "Normals",      "Binades24",           "Binades120",        "SubnormalResults", "RandomFinite",
    "HalfZeros",    "SubnormalTimesLarge", "Overflow",          "Cancellation",     "Specials",
    "AroundTheCut", "MaximalProducts",     "TinyProductsZeroC", "ZerosBesideTiny"};

RLK_HD uint64_t StepMix(uint64_t z) {
  z += 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

// The sum of four uniforms, near a normal of variance 1.
RLK_HD float StepNormal(uint64_t r) {
  int32_t sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<int32_t>(r >> 16 * i & 0xffff) - 32768;
  return Mul(static_cast<float>(sum), 0x1.bb67aep-16f);
}

// x * 2^exponent by two steps, so that the result may be subnormal.
RLK_HD float StepScale(float x, int exponent) {
  const int half = exponent / 2;
  const float a = BitsFloat(static_cast<uint32_t>(half + 127) << 23);
  const float b = BitsFloat(static_cast<uint32_t>(exponent - half + 127) << 23);
  return Mul(Mul(x, a), b);
}

RLK_HD uint16_t StepField(uint16_t bits, int field) {
  return static_cast<uint16_t>((bits & 0x807f) | field << 7);
}

RLK_HD uint16_t StepFinite(uint16_t bits) {
  return (bits & 0x7f80) == 0x7f80 ? static_cast<uint16_t>(bits & 0xbfff) : bits;
}

RLK_HD uint16_t StepSpecial(int choice) {
  switch (choice) {
    case 0:
      return 0x7f80;
    case 1:
      return 0x7fc0;
    case 2:
      return 0x7f81;
    case 3:
      return 0x0000;
    case 4:
      return 0x0001;
    case 5:
      return 0x3f80;
    case 6:
      return 0x7f7f;
    default:
      return 0x0080;
  }
}

// BF16 bits. In kCancellation the caller repeats the first eight products with the other sign.
RLK_HD uint16_t DrawStepOperand(uint64_t seed, StepData data) {
  const uint64_t r = StepMix(seed), s = StepMix(seed ^ 0x5851f42d4c957f2dull);
  const auto bits = static_cast<uint16_t>(s >> 20);
  const float normal = StepNormal(r);
  const auto choice = static_cast<int>(s >> 40 & 0xffffff);
  switch (data) {
    case StepData::kNormals:
      return FloatToBf16(normal);
    case StepData::kBinades24:
      return FloatToBf16(StepScale(normal, choice % 24 - 12));
    case StepData::kBinades120:
      return FloatToBf16(StepScale(normal, choice % 120 - 60));
    case StepData::kSubnormalResults:
      return FloatToBf16(StepScale(normal, -60 - choice % 20));
    case StepData::kRandomFinite:
      return StepFinite(bits);
    case StepData::kHalfZeros:
      return (s & 1) != 0 ? static_cast<uint16_t>(bits & 0x8000) : StepFinite(bits);
    case StepData::kSubnormalTimesLarge:
      return StepField(bits, (s & 1) != 0 ? 0 : 64 + choice % 180);
    case StepData::kOverflow:
      return StepField(bits, 185 + choice % 12);
    case StepData::kCancellation:
      return StepField(bits, 127);
    case StepData::kSpecials:
      if ((s & 7) != 0) return FloatToBf16(normal);
      return static_cast<uint16_t>(StepSpecial(s >> 3 & 7) | (bits & 0x8000));
    case StepData::kAroundTheCut:
      return StepField(bits, 127 - (choice % 3 != 0 ? 10 + choice / 3 % 6 : 0));
    case StepData::kMaximalProducts:
      return static_cast<uint16_t>(0x3fff | ((s & 15) == 0 ? 0x8000 : 0));
    case StepData::kTinyProductsZeroC:
      return StepField(bits, 52 + choice % 16);
    case StepData::kZerosBesideTiny:
      if ((s & 3) == 0) return bits & 0x8000;
      return StepField(bits, (s & 3) == 1 ? 0 : 40 + choice % 60);
  }
  return 0;
}

// FP32 bits.
RLK_HD uint32_t DrawStepAccumulator(uint64_t seed, StepData data) {
  const uint64_t r = StepMix(seed ^ 0xd1b54a32d192ed03ull), s = StepMix(r);
  const auto bits = static_cast<uint32_t>(r >> 7);
  const float normal = StepNormal(r);
  const uint32_t finite = (bits & 0x7f800000u) == 0x7f800000u ? bits & 0xbfffffffu : bits;
  const auto sign = static_cast<uint32_t>(s & 0x80000000u);
  switch (data) {
    case StepData::kNormals:
      return (s & 3) != 0 ? FloatBits(Mul(normal, 4.0f)) : 0u;
    case StepData::kBinades24:
    case StepData::kBinades120:
      return FloatBits(StepScale(normal, static_cast<int>(s >> 40) % 60 - 30));
    case StepData::kSubnormalResults:
      return static_cast<uint32_t>(s) & 0x80ffffffu;
    case StepData::kRandomFinite:
    case StepData::kHalfZeros:
    case StepData::kSubnormalTimesLarge:
      return (s & 3) == 0 ? sign : finite;
    case StepData::kOverflow:
      if ((s & 1) != 0) return 0;
      return (bits & 0x807fffffu) | static_cast<uint32_t>(250 + (s >> 40) % 5) << 23;
    case StepData::kSpecials: {
      const uint32_t choice = static_cast<uint32_t>(s >> 3) & 3;
      if ((s & 7) != 0) return FloatBits(normal);
      const uint32_t special = choice == 0   ? 0x7f800000u
                               : choice == 1 ? 0x7fc12345u
                               : choice == 2 ? 0u
                                             : 1u;
      return special | sign;
    }
    case StepData::kTinyProductsZeroC:
    case StepData::kZerosBesideTiny:
      return (s & 7) != 0 ? sign : bits & 0x807fffffu;
    default:
      return (s & 1) != 0 ? 0u : FloatBits(normal);
  }
}

// A tile of 64 x 8 steps: a has 64 rows and b 8 rows of sixteen operands, c is [64, 8].
inline constexpr int kStepTileRows = 64, kStepTileColumns = 8;

RLK_HD uint64_t StepTileSeed(StepData data, uint64_t tile) {
  return StepMix(StepMix(tile) ^ static_cast<uint64_t>(data));
}
RLK_HD uint16_t DrawTileA(uint64_t seed, StepData data, int row, int product) {
  // Exact cancellation: the last eight products are the first eight with the other sign.
  const bool again = data == StepData::kCancellation && product >= 8;
  const uint16_t bits = DrawStepOperand(
      seed + static_cast<uint64_t>(16 * row + (again ? product - 8 : product)), data);
  return again ? static_cast<uint16_t>(bits ^ 0x8000) : bits;
}
RLK_HD uint16_t DrawTileB(uint64_t seed, StepData data, int column, int product) {
  const bool again = data == StepData::kCancellation && product >= 8;
  return DrawStepOperand(
      seed + 8192 + static_cast<uint64_t>(16 * column + (again ? product - 8 : product)), data);
}
RLK_HD uint32_t DrawTileC(uint64_t seed, StepData data, int row, int column) {
  return DrawStepAccumulator(seed + 16384 + static_cast<uint64_t>(1024 * row + column), data);
}

// What one output adds to the digest of a tile; `index` is its place in [64, 8].
RLK_HD uint64_t StepDigestTerm(uint64_t index, uint32_t bits) {
  return StepMix(index << 32 | bits);
}

// The digest of one tile by the law.
RLK_HD uint64_t StepTileDigest(StepData data, uint64_t tile) {
  const uint64_t seed = StepTileSeed(data, tile);
  uint16_t a[kStepProducts], b[kStepTileColumns][kStepProducts];
  for (int column = 0; column < kStepTileColumns; ++column) {
    for (int i = 0; i < kStepProducts; ++i) b[column][i] = DrawTileB(seed, data, column, i);
  }
  uint64_t digest = 0;
  for (int row = 0; row < kStepTileRows; ++row) {
    for (int i = 0; i < kStepProducts; ++i) a[i] = DrawTileA(seed, data, row, i);
    for (int column = 0; column < kStepTileColumns; ++column) {
      const uint32_t bits = TensorStep(a, b[column], DrawTileC(seed, data, row, column));
      digest += StepDigestTerm(static_cast<uint64_t>(row * kStepTileColumns + column), bits);
    }
  }
  return digest;
}

}  // namespace rlk::arith
