#include "kernels/core/strided.h"

#include <cstring>
#include <vector>

#include "gtest/gtest.h"

namespace rlk {
namespace {

struct Case {
  Dims shape, strides;
};

// Each element holds its storage index; the expected order comes from nested counting.
template <typename T>
void Check(DType dtype) {
  const std::vector<Case> cases = {
      {{}, {}},
      {{7}, {1}},
      {{7}, {3}},
      {{7}, {0}},
      {{3, 5}, {5, 1}},
      {{3, 5}, {1, 3}},
      {{3, 5}, {0, 1}},
      {{2, 3, 4}, {24, 8, 2}},
      {{2, 1, 3, 1, 2, 1, 2, 2}, {24, 7, 8, 5, 4, 9, 2, 1}},
  };
  std::vector<T> storage(128);
  for (size_t i = 0; i < storage.size(); ++i) storage[i] = static_cast<T>(i);
  for (const Case& c : cases) {
    const TensorView view{dtype, c.shape, c.strides, storage.data()};
    std::vector<T> expected;
    for (int64_t i = 0; i < view.elements(); ++i) {
      int64_t rest = i, offset = 0;
      for (int d = c.shape.rank() - 1; d >= 0; --d) {
        offset += rest % c.shape[d] * c.strides[d];
        rest /= c.shape[d];
      }
      expected.push_back(storage[static_cast<size_t>(offset)]);
    }
    for (int64_t begin = 0; begin < view.elements(); ++begin) {
      for (int64_t count = 0; begin + count <= view.elements(); ++count) {
        std::vector<T> got(static_cast<size_t>(count) + 1, T{99});
        GatherElements(view, begin, count, got.data());
        EXPECT_EQ(memcmp(got.data(), expected.data() + begin, sizeof(T) * count), 0);
        EXPECT_EQ(got.back(), T{99}) << "writes no further";
      }
    }
  }
}

TEST(GatherElements, ReadsEveryRangeInLogicalOrder) {
  Check<uint8_t>(DType::kU8);
  Check<uint16_t>(DType::kBF16);
  Check<uint32_t>(DType::kF32);
  Check<uint64_t>(DType::kF64);
}

}  // namespace
}  // namespace rlk
