// The CPU loops of the BF16 linear, of every instruction set, against the law and plain sums.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/arith/step_vectors.h"
#include "kernels/arith/tensor_step.h"
#include "kernels/core/cpu_features.h"
#include "kernels/linear/bf16_cpu.h"

namespace rlk {
namespace {

using arith::StepData;

std::vector<uint16_t> Draw(int64_t count, StepData data, uint64_t seed) {
  std::vector<uint16_t> bits(static_cast<size_t>(count));
  for (size_t i = 0; i < bits.size(); ++i) {
    bits[i] = arith::DrawStepOperand(arith::StepMix(seed) + i, data);
  }
  return bits;
}

// The contract: 16 indices a step, 8 q + 4 u + i, from zero, FP32 adds.
float ForwardElement(const uint16_t* x, const uint16_t* w, int64_t length) {
  float total = 0.0f;
  for (int64_t s = 0; s < length; s += 32) {
    for (int64_t u = 0; u < 2; ++u) {
      uint16_t a[16] = {}, b[16] = {};
      for (int64_t j = 0; j < 16; ++j) {
        const int64_t k = s + 8 * (j / 4) + 4 * u + j % 4;
        if (k >= length) continue;
        a[j] = w[k];
        b[j] = x[k];
      }
      total = arith::Add(total, arith::BitsFloat(arith::TensorStep(a, b, 0)));
    }
  }
  return total;
}

std::vector<uint32_t> CanonicalBits(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  bits.reserve(values.size());
  for (float value : values) bits.push_back(arith::FloatBits(arith::Canonical(value)));
  return bits;
}

std::vector<float> Forward(Isa isa, int64_t rows, int64_t columns, int64_t length,
                           const std::vector<uint16_t>& x, const std::vector<uint16_t>& w) {
  const linear::Bf16LinearLoops& loops = linear::GetBf16LinearLoops(isa);
  const int64_t padded = (length + 31) / 32 * 32;
  std::vector<uint16_t> bits(static_cast<size_t>(rows * padded), 0);
  for (int64_t t = 0; t < rows; ++t) {
    std::copy_n(x.begin() + t * length, length, bits.begin() + t * padded);
  }
  std::vector<float> values(bits.size()), powers(bits.size());
  std::vector<uint8_t> fast(bits.size() / 32);
  loops.prepare(rows, padded, bits.data(), values.data(), powers.data(), fast.data());
  std::vector<float> total(static_cast<size_t>(rows * columns), -1.0f);
  linear::Bf16Forward call;
  call.x = {rows, padded, bits.data(), values.data(), powers.data(), fast.data()};
  call.length = length;
  call.weight = w.data();
  call.columns = columns;
  call.total = total.data();
  call.total_stride = columns;
  loops.forward(call);
  return total;
}

struct Shape {
  int64_t rows, columns, length;
};

class Bf16Linear : public testing::TestWithParam<int> {
 protected:
  StepData data() const { return static_cast<StepData>(GetParam()); }
};

TEST_P(Bf16Linear, ForwardFollowsTheLawForEveryIsa) {
  for (const Shape& shape : {Shape{1, 1, 8}, Shape{3, 17, 40}, Shape{2, 33, 272}, Shape{64, 5, 64},
                             Shape{5, 48, 1000}, Shape{1, 90, 2688}}) {
    const auto x = Draw(shape.rows * shape.length, data(), 1);
    const auto w = Draw(shape.columns * shape.length, data(), 2);
    std::vector<float> expected;
    for (int64_t t = 0; t < shape.rows; ++t) {
      for (int64_t n = 0; n < shape.columns; ++n) {
        expected.push_back(
            ForwardElement(x.data() + t * shape.length, w.data() + n * shape.length, shape.length));
      }
    }
    for (Isa isa : AvailableIsas()) {
      const auto got = Forward(isa, shape.rows, shape.columns, shape.length, x, w);
      ASSERT_EQ(CanonicalBits(got), CanonicalBits(expected))
          << IsaName(isa) << " " << shape.rows << "x" << shape.columns << "x" << shape.length;
    }
  }
}

// The lanes and the integer code take turns inside one sum.
TEST_P(Bf16Linear, OperandsAtTheEdgeOfTheFastRangeFollowTheLaw) {
  const int64_t length = 320, columns = 64, rows = 4;
  auto x = Draw(rows * length, StepData::kNormals, 3);
  auto w = Draw(columns * length, StepData::kNormals, 4);
  for (size_t i = 0; i < w.size(); ++i) {
    const uint64_t r = arith::StepMix(i + 77);
    // Fields 74 .. 80 and 173 .. 179 stand on both sides of the range's ends.
    const int field = static_cast<int>(r % 7) + ((r >> 8 & 1) != 0 ? 74 : 173);
    if (r >> 32 & 1) w[i] = arith::StepField(w[i], field);
    if (i < x.size() && (r >> 33 & 1)) x[i] = arith::StepField(x[i], 251 - field);
  }
  for (Isa isa : AvailableIsas()) {
    const auto got = Forward(isa, rows, columns, length, x, w);
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t n = 0; n < columns; ++n) {
        ASSERT_EQ(
            arith::FloatBits(got[t * columns + n]),
            arith::FloatBits(ForwardElement(x.data() + t * length, w.data() + n * length, length)))
            << IsaName(isa);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Data, Bf16Linear, testing::Range(0, arith::kStepDataCount),
                         [](const auto& info) { return arith::kStepDataNames[info.param]; });

}  // namespace
}  // namespace rlk
