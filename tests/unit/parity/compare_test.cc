// The numbers of a comparison, against a plain count and against the order that the header states.
#include "kernels/compare/compare.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <vector>

namespace rlk::compare {
namespace {

uint64_t Next(uint64_t& state) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

std::vector<uint8_t> RandomBytes(size_t count, uint64_t seed) {
  std::vector<uint8_t> bytes(count);
  uint64_t state = seed * 2654435761u + 1;
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(Next(state) >> 32);
  return bytes;
}

Stats Compare(const Spec& spec, const void* left, const void* right, int64_t elements,
              ThreadPool* pool = nullptr) {
  Stats stats;
  Accumulate(spec, left, right, nullptr, 0, elements, pool, stats);
  return stats;
}

bool SameBits(const Stats& a, const Stats& b) {
  return a.compared == b.compared && a.counts == b.counts && a.first == b.first &&
         std::memcmp(&a.sums, &b.sums, sizeof(a.sums)) == 0 &&
         std::memcmp(&a.extremes, &b.extremes, sizeof(a.extremes)) == 0;
}

// Own conversions: a test that shared the kernel's would share their mistakes.
double HalfValue(uint16_t bits, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits;
  const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  double value = 0;
  if (exponent == (1 << exponent_bits) - 1) {
    value = fraction == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    value = std::ldexp(fraction, 1 - bias - fraction_bits);
  } else {
    value = std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

// What each pair is, from its values alone. Distances by counting in a sorted list of all values.
std::map<int, int64_t> PlainCounts(const std::vector<uint16_t>& left,
                                   const std::vector<uint16_t>& right, int exponent_bits) {
  std::map<int, int64_t> counts;
  for (size_t i = 0; i < left.size(); ++i) {
    const double a = HalfValue(left[i], exponent_bits), b = HalfValue(right[i], exponent_bits);
    if (left[i] == 0xA5A5) ++counts[left[i] == right[i] ? kUnwrittenEqual : kUnwrittenLeft];
    if (right[i] == 0xA5A5 && left[i] != right[i]) ++counts[kUnwrittenRight];
    if (left[i] == right[i]) {
      if (std::isnan(a)) ++counts[kNanEqual];
      if (std::isinf(a)) ++counts[kInfiniteEqual];
      continue;
    }
    ++counts[kMismatched];
    if (std::popcount(static_cast<unsigned>(left[i] ^ right[i])) == 1) ++counts[kSingleBit];
    if (std::isnan(a) || std::isnan(b)) {
      ++counts[std::isnan(a) && std::isnan(b) ? kNanPayload : std::isnan(a) ? kNanLeft : kNanRight];
      if (!std::isnan(a) || !std::isnan(b)) ++counts[kOutside];
      continue;
    }
    if (a != b) ++counts[kOutside];
    if (std::isinf(a) || std::isinf(b)) {
      ++counts[std::isinf(a) && std::isinf(b) ? kInfiniteSign
               : std::isinf(a)                ? kInfiniteLeft
                                              : kInfiniteRight];
      continue;
    }
    if (a == 0 && b == 0) ++counts[kZeroSign];
    if ((a < 0 && b > 0) || (a > 0 && b < 0)) {
      ++counts[kSignDiffers];
      continue;
    }
    const int64_t distance = std::llabs((left[i] & 0x7fff) - (right[i] & 0x7fff));
    int bucket = 0;
    while (static_cast<uint64_t>(distance) > BucketLast(bucket)) ++bucket;
    ++counts[kUlp + bucket];
  }
  return counts;
}

TEST(Compare, EveryPatternOfSixteenBitsIsCountedForWhatItIs) {
  std::vector<uint16_t> left(65536), right(65536);
  for (const auto& [dtype, exponent_bits] : {std::pair(DType::kF16, 5), {DType::kBF16, 8}}) {
    for (const uint32_t change : {0u, 1u, 0x8000u, 0x4u, 0x7fffu, 0x1234u}) {
      for (uint32_t i = 0; i < 65536; ++i) {
        left[i] = static_cast<uint16_t>(i);
        right[i] = static_cast<uint16_t>(i ^ change);
      }
      const Stats stats = Compare({dtype, 0, 0, 1e-12}, left.data(), right.data(), 65536);
      const std::map<int, int64_t> expected = PlainCounts(left, right, exponent_bits);
      for (int c = 0; c < kCounterCount; ++c) {
        const auto found = expected.find(c);
        EXPECT_EQ(stats.counts[static_cast<size_t>(c)], found == expected.end() ? 0 : found->second)
            << DTypeName(dtype) << " ^ " << change << ", counter " << c;
      }
      EXPECT_EQ(stats.first, change == 0 ? -1 : 0);
    }
  }
}

// The order of the header, written once more and without any of its shortcuts.
double StatedSum(const std::vector<float>& left, const std::vector<float>& right,
                 double (*term)(double, double)) {
  const auto n = static_cast<int64_t>(left.size());
  double total = 0;
  for (int64_t segment = 0; segment < n; segment += kSegmentElements) {
    double of_segment = 0;
    const int64_t segment_end = std::min(n, segment + kSegmentElements);
    for (int64_t block = segment; block < segment_end; block += kBlockElements) {
      double lanes[32] = {};
      for (int64_t i = block; i < std::min(segment_end, block + kBlockElements); ++i) {
        const double value = term(left[static_cast<size_t>(i)], right[static_cast<size_t>(i)]);
        lanes[(i - block) * 4 / 16 % 32] += value;
      }
      for (int step = 1; step < 32; step *= 2) {
        for (int l = 0; l < 32; l += 2 * step) lanes[l] += lanes[l + step];
      }
      of_segment += lanes[0];
    }
    total += of_segment;
  }
  return total;
}

TEST(Compare, SumsHaveTheStatedOrderAlsoWhereBlocksAreEqual) {
  uint64_t state = 42;
  for (const size_t n : {1u, 5u, 4096u, 4097u, 70000u, 200001u}) {
    std::vector<float> left(n), right(n);
    for (size_t i = 0; i < n; ++i) {
      right[i] = static_cast<float>(static_cast<double>(Next(state) % 2000003) * 1e-3 - 1000);
      // Every third block is equal.
      const bool equal = i / 4096 % 3 == 1;
      left[i] = equal ? right[i] : right[i] + static_cast<float>(Next(state) % 7);
    }
    const Sums sums =
        Compare({DType::kF32, 0, 0, 1e-12}, left.data(), right.data(), static_cast<int64_t>(n))
            .sums;
    EXPECT_EQ(sums.left, StatedSum(left, right, [](double a, double) { return a; }));
    EXPECT_EQ(sums.right, StatedSum(left, right, [](double, double b) { return b; }));
    EXPECT_EQ(sums.product, StatedSum(left, right, [](double a, double b) { return a * b; }));
    EXPECT_EQ(sums.right_squared, StatedSum(left, right, [](double, double b) { return b * b; }));
    EXPECT_EQ(sums.error, StatedSum(left, right, [](double a, double b) { return a - b; }));
    EXPECT_EQ(sums.error_squared,
              StatedSum(left, right, [](double a, double b) { return (a - b) * (a - b); }));
    EXPECT_EQ(sums.magnitude, StatedSum(left, right, [](double a, double b) {
                return std::fabs(a) - std::fabs(b);
              }));
  }
}

TEST(Compare, NeitherThreadsNorSlicesMoveABit) {
  for (int d = 1; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    const int64_t n = 3 * kSegmentElements + 12345;
    const auto bytes = static_cast<size_t>(n * DTypeSize(dtype));
    const std::vector<uint8_t> left = RandomBytes(bytes, 1);
    std::vector<uint8_t> right = left;
    for (size_t i = 0; i < bytes; i += 1009) right[i] ^= 0x5a;
    const Spec spec = {dtype, 1e-3, 1e-2, 1e-12};
    const Stats whole = Compare(spec, left.data(), right.data(), n);
    for (const int threads : {2, 3, 5}) {
      ThreadPool pool(threads);
      EXPECT_TRUE(SameBits(Compare(spec, left.data(), right.data(), n, &pool), whole))
          << DTypeName(dtype) << ", " << threads << " threads";
    }
    for (const int64_t slice : {kSegmentElements, 2 * kSegmentElements}) {
      Stats sliced;
      for (int64_t first = 0; first < n; first += slice) {
        Accumulate(spec, left.data(), right.data(), nullptr, first, std::min(slice, n - first),
                   nullptr, sliced);
      }
      EXPECT_TRUE(SameBits(sliced, whole)) << DTypeName(dtype) << ", slices of " << slice;
    }
  }
}

TEST(Compare, ExcessIsTheLargestAndNamesItsFirstElement) {
  const std::vector<float> right = {1, 2, 4, 8, 1};
  const std::vector<float> left = {1.5f, 2, 4.5f, 8.5f, 1.5f};
  const Stats stats = Compare({DType::kF32, 0.25, 0.125, 1e-12}, left.data(), right.data(), 5);
  // |error| - (0.25 + 0.125 |right|): 0.125, -, -0.25, -0.75, 0.125.
  EXPECT_EQ(stats.extremes.excess, 0.125);
  EXPECT_EQ(stats.extremes.excess_index, 0);
  EXPECT_EQ(stats.counts[kOutside], 2);
  EXPECT_EQ(stats.extremes.absolute, 0.5);
  EXPECT_EQ(stats.extremes.relative, 0.5);
  EXPECT_EQ(stats.extremes.left, 8.5);
  EXPECT_EQ(stats.extremes.right, 8);
}

TEST(Compare, AWideReferenceGivesErrorsOfItsOwnAndDistancesOfItsRounding) {
  const std::vector<double> wide = {1 + 0x1p-10, 2, 3};
  const std::vector<uint16_t> left = {0x3f80, 0x4000, 0x4041};  // BF16 1, 2, 3 + 1 ULP
  std::vector<uint16_t> rounded(3);
  RoundTo(DType::kBF16, wide.data(), 3, rounded.data());
  EXPECT_EQ(rounded, (std::vector<uint16_t>{0x3f80, 0x4000, 0x4040}));
  Stats stats;
  Accumulate({DType::kBF16, 0, 0, 1e-12}, left.data(), rounded.data(), wide.data(), 0, 3, nullptr,
             stats);
  EXPECT_EQ(stats.counts[kMismatched], 1);
  EXPECT_EQ(stats.counts[kUlp + 1], 1);
  EXPECT_EQ(stats.counts[kOutside], 2);
  EXPECT_EQ(stats.sums.error, -0x1p-10 + 0x1p-6);
}

TEST(Compare, RoundingIsOnceAndToEven) {
  struct Case {
    DType dtype;
    double value;
    uint32_t bits;
  } const cases[] = {
      {DType::kBF16, 1 + 0x1p-8, 0x3f80},            // tie to even
      {DType::kBF16, 1 + 0x1p-8 + 0x1p-40, 0x3f81},  // a rounding to FP32 first would lose this
      {DType::kBF16, 1 + 3 * 0x1p-8, 0x3f82},        // tie to even
      {DType::kF16, 1 + 0x1p-11 + 0x1p-45, 0x3c01},
      {DType::kF16, 65519.99, 0x7bff},
      {DType::kF16, 65520, 0x7c00},
      {DType::kF16, 0x1p-25, 0},
      {DType::kF16, 0x1p-25 + 0x1p-60, 1},
      {DType::kF16, -0.0, 0x8000},
      {DType::kBF16, 3.4e38, 0x7f80},
      {DType::kBF16, -INFINITY, 0xff80},
      {DType::kBF16, NAN, 0x7fff},
      {DType::kF32, 0x1p-150, 0},
      {DType::kF32, 0x1.8p-149, 2},
      {DType::kF32, 1 + 0x1p-24, 0x3f800000},
      {DType::kF32, NAN, 0x7fffffff},
  };
  for (const Case& c : cases) {
    uint32_t bits = 0;
    RoundTo(c.dtype, &c.value, 1, &bits);
    EXPECT_EQ(bits, c.bits) << DTypeName(c.dtype) << " " << c.value;
  }
}

TEST(Compare, RowsAreCountedWithTheWorstFirst) {
  constexpr int64_t kRows = 70001, kColumns = 5;
  std::vector<int32_t> left(kRows * kColumns), right;
  right = left;
  for (const auto& [row, columns] :
       {std::pair(7, std::vector<int>{2}), {12, {1, 2, 3}}, {69999, {2, 3, 4}}}) {
    for (const int c : columns) right[static_cast<size_t>(row * kColumns + c)] = 1;
  }
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    const RowStats stats =
        CompareRows(DType::kI32, left.data(), right.data(), kRows, kColumns, 2, &pool);
    EXPECT_EQ(stats.mismatched, 3);
    EXPECT_EQ(stats.first, 7);
    EXPECT_EQ(stats.last, 69999);
    EXPECT_EQ(stats.first_column, 1);
    EXPECT_EQ(stats.last_column, 4);
    EXPECT_EQ(stats.listed, (std::vector<int64_t>{7, 12, 69999}));
    ASSERT_EQ(stats.worst.size(), 2u);
    EXPECT_EQ(stats.worst[0].row, 12);
    EXPECT_EQ(stats.worst[0].mismatched, 3);
    EXPECT_EQ(stats.worst[1].row, 69999);
  }
}

TEST(Compare, BucketsHaveNoGapsAndNoOverlap) {
  EXPECT_EQ(BucketFirst(0), 0u);
  for (int bucket = 1; bucket < kUlpBuckets; ++bucket) {
    EXPECT_EQ(BucketFirst(bucket), BucketLast(bucket - 1) + 1) << bucket;
    EXPECT_LE(BucketFirst(bucket), BucketLast(bucket)) << bucket;
  }
  EXPECT_EQ(BucketFirst(kUlpBuckets - 1), (uint64_t{1} << 16) + 1);
}

}  // namespace
}  // namespace rlk::compare
