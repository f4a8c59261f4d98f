// Tensors for comparisons, and the comparison itself with the built-in contract.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/compare/compare.h"
#include "server/parity/comparison.h"

namespace rlk::test {

// The same numbers on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull + 1) {}
  uint64_t Bits() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }
  // [0, 1).
  double Uniform() { return static_cast<double>(Bits() >> 11) * 0x1p-53; }
  // The sum of twelve: close enough to a normal distribution, and no library function in it.
  double Normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += Uniform();
    return sum;
  }

 private:
  uint64_t state_;
};

inline std::vector<double> Normals(int64_t count, uint64_t seed, double scale = 1) {
  Random random(seed);
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) value = scale * random.Normal();
  return values;
}

// Values rounded to the dtype once.
inline std::vector<double> Rounded(DType dtype, std::vector<double> values) {
  std::vector<uint64_t> raw(values.size() + 1);
  compare::RoundTo(dtype, values.data(), static_cast<int64_t>(values.size()), raw.data());
  compare::Widen(dtype, raw.data(), static_cast<int64_t>(values.size()), values.data());
  return values;
}

inline server::ParityTensor TensorOf(DType dtype, const Dims& shape, const void* data) {
  const int64_t bytes = ByteCount(shape, dtype);
  auto copy = std::make_shared<std::vector<uint64_t>>(static_cast<size_t>(bytes / 8 + 1));
  if (bytes > 0) std::memcpy(copy->data(), data, static_cast<size_t>(bytes));
  server::ParityTensor tensor;
  tensor.dtype = dtype;
  tensor.shape = shape;
  tensor.data = reinterpret_cast<const std::byte*>(copy->data());
  tensor.owner = copy;
  return tensor;
}

inline server::ParityTensor TensorOf(DType dtype, const Dims& shape,
                                     const std::vector<double>& values) {
  std::vector<uint64_t> raw(values.size() + 1);
  compare::RoundTo(dtype, values.data(), static_cast<int64_t>(values.size()), raw.data());
  return TensorOf(dtype, shape, raw.data());
}

template <typename T>
T* MutableElements(server::ParityTensor& tensor) {
  return reinterpret_cast<T*>(const_cast<std::byte*>(tensor.data));
}

inline server::Comparison Compared(const server::ParityTensor& left,
                                   const server::ParityTensor& right,
                                   server::ComparisonOptions options = {}) {
  const auto comparison = server::CompareTensors(
      left, right, options, {&server::ToleranceContract::Builtin(), nullptr}, {});
  EXPECT_TRUE(comparison.ok()) << comparison.status();
  return comparison.ok() ? *comparison : server::Comparison();
}

}  // namespace rlk::test
