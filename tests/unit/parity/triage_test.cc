// Planted faults: each is found, counted, and named for what it is. The faults are those of real
// reports, made by the arithmetic that made them.
#include "server/parity/triage.h"

#include <algorithm>
#include <functional>
#include <string>

#include "tests/unit/parity/parity_data.h"

namespace rlk::test {
namespace {

using server::Comparison;
using server::ParityTensor;
using server::TriageClass;
using server::TriageName;

constexpr int64_t kRows = 64, kColumns = 2048;
constexpr int64_t kCount = kRows * kColumns;

// RMSNorm rows in FP32, with one of the conventions that models and engines differ in.
enum class Convention { kWeightInFp32, kCastFirst, kOffset, kOffsetMissing };
std::vector<double> RmsNorm(const std::vector<double>& x, const std::vector<double>& weight,
                            Convention convention, bool reversed = false) {
  std::vector<double> y(x.size());
  for (int64_t row = 0; row < kRows; ++row) {
    const double* const in = x.data() + row * kColumns;
    float sum = 0;
    for (int64_t i = 0; i < kColumns; ++i) {
      const auto value = static_cast<float>(in[reversed ? kColumns - 1 - i : i]);
      sum += value * value;
    }
    const float scale = 1.0f / std::sqrt(sum / static_cast<float>(kColumns) + 1e-6f);
    for (int64_t i = 0; i < kColumns; ++i) {
      auto normed = static_cast<double>(static_cast<float>(in[i]) * scale);
      double w = weight[static_cast<size_t>(i)];
      if (convention == Convention::kOffset) w = static_cast<float>(1 + w);
      if (convention == Convention::kCastFirst) normed = Rounded(DType::kBF16, {normed})[0];
      y[static_cast<size_t>(row * kColumns + i)] = static_cast<float>(normed * w);
    }
  }
  return y;
}

std::vector<double> Softcap(std::vector<double> x, int times) {
  for (int i = 0; i < times; ++i) {
    for (double& value : x) value = 30 * std::tanh(value / 30);
  }
  return x;
}

std::vector<double> Changed(std::vector<double> x,
                            const std::function<double(int64_t, double)>& f) {
  for (size_t i = 0; i < x.size(); ++i) x[i] = f(static_cast<int64_t>(i), x[i]);
  return x;
}

double TowardZero(double value, int bits) {
  const double quantum = std::ldexp(1.0, std::ilogb(value) - bits + 1);
  return value == 0 ? 0 : std::trunc(value / quantum) * quantum;
}

// Sums of products in FP32, with another order.
std::vector<double> Dots(int64_t count, int64_t length, int chunk) {
  Random random(9);
  std::vector<double> sums(static_cast<size_t>(count));
  for (double& result : sums) {
    float total = 0, part = 0;
    for (int64_t i = 0; i < length; ++i) {
      const auto a = static_cast<float>(random.Normal()), b = static_cast<float>(random.Normal());
      part += a * b;
      if ((i + 1) % chunk == 0) total += std::exchange(part, 0.0f);
    }
    result = total + part;
  }
  return sums;
}

struct Fault {
  const char* name;
  DType dtype;
  std::vector<double> left, right;
  TriageClass expected;
};

std::vector<Fault> Faults() {
  const std::vector<double> x = Rounded(DType::kBF16, Normals(kCount, 1));
  const std::vector<double> logits = Rounded(DType::kBF16, Normals(kCount, 2, 12));
  const std::vector<double> weight = Rounded(DType::kBF16, Normals(kColumns, 3, 0.2));
  const auto norm = [&](Convention convention) { return RmsNorm(x, weight, convention); };
  const auto last_rows = [](int64_t i, double v) {
    return i / kColumns >= kRows - 4 ? 1.5 * v : v;
  };
  const auto last_columns = [](int64_t i, double v) {
    return i % kColumns >= kColumns - 40 ? v + 0.1 * (i % 7) : v;
  };
  const auto from_row = [](int64_t i, double v) {
    return i / kColumns >= 23 ? v * (1 + 0.01 * (i % 13)) : v;
  };
  const auto every_tile = [](int64_t i, double v) { return i % kColumns % 64 == 63 ? -v : v; };
  return {
      {"nothing", DType::kBF16, x, x, TriageClass::kNone},
      {"bf16 cast before the weight", DType::kBF16, norm(Convention::kCastFirst),
       norm(Convention::kWeightInFp32), TriageClass::kRoundingPlace},
      {"bf16 cast inside an FP32 result", DType::kF32, norm(Convention::kCastFirst),
       norm(Convention::kWeightInFp32), TriageClass::kRoundingPlace},
      {"weight offset missing", DType::kBF16, norm(Convention::kOffsetMissing),
       norm(Convention::kOffset), TriageClass::kChannelFactor},
      {"weight offset missing in FP32", DType::kF32, norm(Convention::kOffsetMissing),
       norm(Convention::kOffset), TriageClass::kChannelFactor},
      {"weight left out", DType::kF32, norm(Convention::kWeightInFp32),
       RmsNorm(x, std::vector<double>(kColumns, 1), Convention::kWeightInFp32),
       TriageClass::kChannelFactor},
      {"sum of squares from the other end", DType::kF32, norm(Convention::kOffset),
       RmsNorm(x, weight, Convention::kOffset, /*reversed=*/true), TriageClass::kReductionOrder},
      {"softcap missing", DType::kF32, logits, Softcap(logits, 1),
       TriageClass::kElementwiseFunction},
      {"softcap missing in BF16", DType::kBF16, logits, Softcap(logits, 1),
       TriageClass::kElementwiseFunction},
      {"softcap twice", DType::kF32, Softcap(logits, 2), Softcap(logits, 1),
       TriageClass::kElementwiseFunction},
      {"softcap twice in F16", DType::kF16, Softcap(logits, 2), Softcap(logits, 1),
       TriageClass::kElementwiseFunction},
      {"constant added", DType::kF32, Changed(x, [](int64_t, double v) { return v + 0.125; }), x,
       TriageClass::kConstantOffset},
      {"constant added in BF16", DType::kBF16,
       Changed(x, [](int64_t, double v) { return v + 0.25; }), x, TriageClass::kConstantOffset},
      {"scale twice", DType::kBF16, Changed(x, [](int64_t, double v) { return v * 0.0884; }), x,
       TriageClass::kConstantFactor},
      {"scale off by a thousandth", DType::kF32,
       Changed(x, [](int64_t, double v) { return v * 1.001; }), x, TriageClass::kConstantFactor},
      {"twice as large", DType::kF32, Changed(x, [](int64_t, double v) { return v * 2; }), x,
       TriageClass::kConstantFactor},
      {"negated", DType::kF32, Changed(x, [](int64_t, double v) { return -v; }), x,
       TriageClass::kConstantFactor},
      {"reduction chunks of 32 and of 256", DType::kF32, Dots(kRows * 64, 1024, 32),
       Dots(kRows * 64, 1024, 256), TriageClass::kReductionOrder},
      {"reduction chunks, then BF16", DType::kBF16, Dots(kRows * 512, 512, 32),
       Dots(kRows * 512, 512, 256), TriageClass::kReductionOrder},
      {"truncated to BF16", DType::kBF16,
       Changed(Normals(kCount, 4), [](int64_t, double v) { return TowardZero(v, 8); }),
       Normals(kCount, 4), TriageClass::kTruncation},
      {"truncated to 20 bits", DType::kF32,
       Changed(Normals(kCount, 4), [](int64_t, double v) { return TowardZero(v, 20); }),
       Normals(kCount, 4), TriageClass::kTruncation},
      {"last rows", DType::kF32, Changed(x, last_rows), x, TriageClass::kTileEdge},
      {"last columns", DType::kF32, Changed(x, last_columns), x, TriageClass::kTileEdge},
      {"one column of every tile", DType::kF32, Changed(x, every_tile), x, TriageClass::kTileEdge},
      {"from a row on", DType::kF32, Changed(x, from_row), x, TriageClass::kFromPosition},
      {"other numbers", DType::kF32, Normals(kCount, 5), x, TriageClass::kUnclassified},
  };
}

TEST(Triage, NamesEachPlantedFault) {
  for (const Fault& fault : Faults()) {
    const auto count = static_cast<int64_t>(fault.left.size());
    const Dims shape = count == kCount ? Dims{kRows, kColumns} : Dims{kRows, count / kRows};
    const Comparison comparison = Compared(TensorOf(fault.dtype, shape, fault.left),
                                           TensorOf(fault.dtype, shape, fault.right));
    EXPECT_EQ(TriageName(comparison.triage.triage), TriageName(fault.expected))
        << fault.name << ": " << comparison.triage.hint;
    EXPECT_EQ(comparison.passed, fault.expected == TriageClass::kNone) << fault.name;
    EXPECT_FALSE(comparison.triage.hint.empty()) << fault.name;
  }
}

// What is in the bits alone, planted in a tensor of `count` BF16 elements.
struct BitFault {
  const char* name;
  std::function<void(uint16_t* left, uint16_t* right)> plant;
  TriageClass expected;
  int64_t mismatched;
  int64_t first;
};

TEST(Triage, NamesFaultsOfSingleElementsAndRows) {
  const std::vector<double> x = Normals(kCount, 7);
  const auto swap_rows = [](uint16_t* left, uint16_t*) {
    std::swap_ranges(left + 5 * kColumns, left + 6 * kColumns, left + 40 * kColumns);
  };
  const BitFault faults[] = {
      {"a flipped bit", [](uint16_t* left, uint16_t*) { left[77777] ^= 1 << 3; },
       TriageClass::kIsolatedBits, 1, 77777},
      {"a flipped sign", [](uint16_t* left, uint16_t*) { left[9] ^= 0x8000; },
       TriageClass::kIsolatedBits, 1, 9},
      {"two rows swapped", swap_rows, TriageClass::kRowsPermuted, -1, -1},
      {"a wrong element", [](uint16_t* left, uint16_t*) { left[4567] ^= 0x0018; },
       TriageClass::kUnclassified, 1, 4567},
      {"a NaN", [](uint16_t* left, uint16_t*) { left[100] = 0x7fff; }, TriageClass::kNonfinite, 1,
       100},
      {"an infinity", [](uint16_t* left, uint16_t*) { left[100] = 0x7f80; },
       TriageClass::kNonfinite, 1, 100},
      {"an unwritten tile",
       [](uint16_t* left, uint16_t*) { std::fill_n(left + 4096, 128, uint16_t{0xA5A5}); },
       TriageClass::kUnwritten, 128, 4096},
      {"one unwritten element", [](uint16_t* left, uint16_t*) { left[3] = 0xA5A5; },
       TriageClass::kUnwritten, 1, 3},
      {"zeros of the other sign",
       [](uint16_t* left, uint16_t* right) {
         for (const int64_t i : {5, 600, 70000}) {
           left[i] = 0x8000;
           right[i] = 0;
         }
       },
       TriageClass::kZeroSign, 3, 5},
      {"NaN with another payload",
       [](uint16_t* left, uint16_t* right) {
         left[8] = 0x7fff;
         right[8] = 0xffc0;
       },
       TriageClass::kNanPayload, 1, 8},
  };
  for (const BitFault& fault : faults) {
    ParityTensor left = TensorOf(DType::kBF16, {kRows, kColumns}, x);
    ParityTensor right = TensorOf(DType::kBF16, {kRows, kColumns}, x);
    fault.plant(MutableElements<uint16_t>(left), MutableElements<uint16_t>(right));
    const Comparison comparison = Compared(left, right);
    EXPECT_EQ(TriageName(comparison.triage.triage), TriageName(fault.expected))
        << fault.name << ": " << comparison.triage.hint;
    EXPECT_FALSE(comparison.passed) << fault.name;
    if (fault.mismatched < 0) continue;
    EXPECT_EQ(comparison.mismatched(), fault.mismatched) << fault.name;
    ASSERT_TRUE(comparison.first_mismatch.has_value()) << fault.name;
    EXPECT_EQ(comparison.first_mismatch->flat_index, fault.first) << fault.name;
  }
}

TEST(Triage, FindsOneFlippedMantissaBitInAHundredMillionElements) {
  constexpr int64_t kElements = 100'000'000, kAt = 71'234'567;
  ParityTensor left, right;
  for (ParityTensor* side : {&left, &right}) {
    auto memory = std::make_shared<std::vector<uint16_t>>(kElements);
    for (size_t i = 0; i < memory->size(); ++i) {
      (*memory)[i] = static_cast<uint16_t>(0x3c00 + (i * 2654435761u >> 16) % 0x0300);
    }
    *side = {};
    side->dtype = DType::kBF16;
    side->shape = {100, 1000, 1000};
    side->data = reinterpret_cast<const std::byte*>(memory->data());
    side->owner = memory;
  }
  const uint16_t before = MutableElements<uint16_t>(left)[kAt];
  MutableElements<uint16_t>(left)[kAt] ^= 1 << 6;
  const Comparison comparison = Compared(left, right, {.digests = false});
  EXPECT_EQ(comparison.triage.triage, TriageClass::kIsolatedBits) << comparison.triage.hint;
  EXPECT_EQ(comparison.stats.compared, kElements);
  EXPECT_EQ(comparison.mismatched(), 1);
  ASSERT_TRUE(comparison.first_mismatch.has_value());
  EXPECT_EQ(comparison.first_mismatch->flat_index, kAt);
  EXPECT_EQ(comparison.first_mismatch->indices, (std::vector<int64_t>{71, 234, 567}));
  char text[8];
  std::snprintf(text, sizeof(text), "%04x", before);
  EXPECT_EQ(comparison.first_mismatch->right_bits, text);
  std::snprintf(text, sizeof(text), "%04x", before ^ (1 << 6));
  EXPECT_EQ(comparison.first_mismatch->left_bits, text);
}

}  // namespace
}  // namespace rlk::test
