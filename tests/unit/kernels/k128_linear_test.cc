// The CPU loops of contract bf16-k128-v1, of every instruction set, against the law as integer
// code: chains of steps in an accumulator.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/arith/step_vectors.h"
#include "kernels/arith/tensor_step.h"
#include "kernels/core/cpu_features.h"
#include "kernels/linear/k128_cpu.h"

namespace rlk {
namespace {

using arith::StepData;

using Matrix = std::vector<uint16_t>;

Matrix Draw(int64_t count, StepData data, uint64_t seed) {
  Matrix bits(static_cast<size_t>(count));
  for (size_t i = 0; i < bits.size(); ++i) {
    bits[i] = arith::DrawStepOperand(arith::StepMix(seed) + i, data);
  }
  return bits;
}

struct Shape {
  int64_t rows, columns, length;
};

// a: [rows, length], b: [columns, length]. FP32 adds of chains of eight steps.
std::vector<uint32_t> Law(const Shape& shape, const Matrix& a, const Matrix& b) {
  std::vector<uint32_t> sums;
  for (int64_t t = 0; t < shape.rows; ++t) {
    for (int64_t n = 0; n < shape.columns; ++n) {
      float sum = 0.0f;
      for (int64_t k0 = 0; k0 < shape.length; k0 += 128) {
        uint32_t c = 0;
        for (int64_t k = k0; k < std::min(k0 + 128, shape.length); k += 16) {
          uint16_t x[16] = {}, w[16] = {};
          for (int64_t j = 0; j < std::min<int64_t>(16, shape.length - k); ++j) {
            x[j] = a[t * shape.length + k + j];
            w[j] = b[n * shape.length + k + j];
          }
          c = arith::TensorStep(x, w, c);
        }
        sum = arith::Add(sum, arith::BitsFloat(c));
      }
      sums.push_back(arith::FloatBits(arith::Canonical(sum)));
    }
  }
  return sums;
}

std::vector<uint32_t> Loops(Isa isa, const Shape& shape, const Matrix& a, const Matrix& b,
                            bool along) {
  const linear::K128Loops& loops = linear::GetK128Loops(isa);
  const int64_t chunks = (shape.length + 127) / 128;
  Matrix bits(static_cast<size_t>(shape.rows * chunks * 128));
  std::vector<float> values(bits.size()), powers(bits.size());
  std::vector<linear::K128Range> ranges(static_cast<size_t>(shape.rows * chunks));
  linear::K128Product product;
  product.rows = {shape.rows, chunks, 1, bits.data(), values.data(), powers.data(), ranges.data()};
  for (int64_t t = 0; t < shape.rows; ++t) {
    loops.prepare({.bf16 = a.data() + t * shape.length}, shape.length, t, product.rows);
  }
  Matrix across(b.size());
  for (int64_t n = 0; n < shape.columns; ++n) {
    for (int64_t k = 0; k < shape.length; ++k) {
      across[k * shape.columns + n] = b[n * shape.length + k];
    }
  }
  std::vector<float> sums(static_cast<size_t>(shape.rows * shape.columns), 0.0f);
  product.length = shape.length;
  product.matrix = along ? b.data() : across.data();
  product.stride = along ? shape.length : shape.columns;
  product.along = along;
  product.columns = shape.columns;
  product.sum = sums.data();
  product.sum_stride = shape.columns;
  loops.accumulate(product);
  std::vector<uint32_t> result;
  for (float sum : sums) result.push_back(arith::FloatBits(arith::Canonical(sum)));
  return result;
}

void ExpectLaw(const Shape& shape, const Matrix& a, const Matrix& b, const std::string& what) {
  const std::vector<uint32_t> expected = Law(shape, a, b);
  for (Isa isa : AvailableIsas()) {
    for (bool along : {false, true}) {
      ASSERT_EQ(Loops(isa, shape, a, b, along), expected)
          << what << " " << IsaName(isa) << (along ? " along" : " across");
    }
  }
}

class K128Linear : public testing::TestWithParam<int> {};

TEST_P(K128Linear, ChainsFollowTheLawForEveryIsa) {
  const auto data = static_cast<StepData>(GetParam());
  for (const Shape& shape : {Shape{1, 1, 8}, Shape{3, 17, 40}, Shape{2, 33, 272}, Shape{64, 5, 64},
                             Shape{4, 72, 1000}, Shape{1, 90, 2688}, Shape{16, 64, 512}}) {
    ExpectLaw(shape, Draw(shape.rows * shape.length, data, 1),
              Draw(shape.columns * shape.length, data, 2), arith::kStepDataNames[GetParam()]);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Data, K128Linear, testing::Range(0, arith::kStepDataCount),
                         [](const auto& info) { return arith::kStepDataNames[info.param]; });

// Exponent fields in a window from `low`, beside rows whose own window makes sums of fields around
// `around`: both ends of what the lanes take, and beyond them.
TEST(K128LinearRange, OperandsAtTheEdgeOfTheFastRangeFollowTheLaw) {
  const Shape shape = {16, 48, 256};
  uint64_t seed = 0;
  for (int around : {120, 140, 150, 154, 160, 170, 254, 330, 340, 344, 350}) {
    for (int width : {1, 3, 12, 40}) {
      for (int low : {60, 100}) {
        const auto draw = [&](int64_t count, int from) {
          Matrix bits(static_cast<size_t>(count));
          for (uint16_t& element : bits) {
            const uint64_t r = arith::StepMix(++seed);
            const int field = std::clamp(from + static_cast<int>(r % width), 0, 254);
            element = arith::StepField(static_cast<uint16_t>(r >> 16), field);
            if ((r >> 40) % 16 == 0) element = 0;
          }
          return bits;
        };
        ExpectLaw(shape, draw(shape.rows * shape.length, std::clamp(around - low, 0, 254)),
                  draw(shape.columns * shape.length, low),
                  std::to_string(around) + " width " + std::to_string(width));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Sixteen products just below 2^2 beside an accumulator of their size leave an int32.
TEST(K128LinearRange, SumsBeyondAnInt32FollowTheLaw) {
  for (int first : {8, 12, 15, 16}) {
    const Shape shape = {1, 16, 128};
    Matrix a(128, 0x3fff), b(static_cast<size_t>(16 * 128), 0x3fff);
    // The first step gives an accumulator of `first` products less 16: within their exponent.
    for (int64_t k = first; k < 16; ++k) a[k] = 0;
    for (int64_t n = 0; n < 16; ++n) {
      for (int64_t k = 1; k < 16; ++k) b[n * 128 + k] = k <= n / 4 ? 0x3fff : 0;
      if (n % 2 != 0) {
        for (int64_t k = 0; k < 128; ++k) b[n * 128 + k] ^= 0x8000;
      }
    }
    ExpectLaw(shape, a, b, "first " + std::to_string(first));
  }
}

// An accumulator that meets nothing but zeros stays as it is, however small.
TEST(K128LinearRange, AnAccumulatorAloneIsKept) {
  const Shape shape = {2, 16, 128};
  for (int field : {77, 78, 90, 127}) {
    Matrix a(static_cast<size_t>(2 * 128), 0), b(static_cast<size_t>(16 * 128), 0);
    for (int64_t t = 0; t < 2; ++t) {
      a[t * 128] = arith::StepField(0x3f80, field);
      a[t * 128 + 1] = arith::StepField(t == 0 ? 0xbf80 : 0xbf81, field);
    }
    for (int64_t n = 0; n < 16; ++n) {
      b[n * 128] = arith::StepField(0x3f81, 77);
      b[n * 128 + 1] = arith::StepField(static_cast<uint16_t>(0x3f81 + n), 77);
    }
    ExpectLaw(shape, a, b, std::to_string(field));
  }
}

}  // namespace
}  // namespace rlk
