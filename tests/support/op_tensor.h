// Tensors of test calls as plain bytes, so that the GPU's tests can put the same call into device
// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/arith/convert.h"
#include "kernels/core/tensor_view.h"
#include "kernels/registry/golden_reader.h"
#include "kernels/registry/golden_variant.h"

namespace rlk::test {

// Elements in C order.
struct OpTensor {
  DType dtype = DType::kUnspecified;
  Dims shape;
  std::vector<std::byte> bytes;

  bool present() const { return dtype != DType::kUnspecified; }
  TensorView view(const void* base) const { return {dtype, shape, ContiguousStrides(shape), base}; }
};

// One cast, by integer steps that share no code with the kernels.
inline uint32_t OpElement(DType dtype, float value) {
  if (dtype == DType::kF16) return RoundF64ToF16(value);
  if (dtype == DType::kBF16) return RoundF64ToBf16(value);
  return arith::FloatBits(value);
}

inline OpTensor MakeOpTensor(DType dtype, const Dims& shape, const std::vector<float>& values) {
  OpTensor tensor{dtype, shape, {}};
  const auto size = static_cast<size_t>(DTypeSize(dtype));
  tensor.bytes.resize(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t bits = OpElement(dtype, values[i]);
    memcpy(&tensor.bytes[i * size], &bits, size);
  }
  return tensor;
}

// The elements of an output, up-converted.
inline std::vector<float> OpValues(DType dtype, const std::vector<std::byte>& bytes) {
  const auto size = static_cast<size_t>(DTypeSize(dtype));
  std::vector<float> values(bytes.size() / size);
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bits = 0;
    memcpy(&bits, &bytes[i * size], size);
    values[i] = dtype == DType::kF32 ? arith::BitsFloat(bits)
                                     : static_cast<float>(golden::DecodeAs(dtype, bits));
  }
  return values;
}

inline std::vector<float> OpValues(const OpTensor& tensor) {
  return OpValues(tensor.dtype, tensor.bytes);
}

inline OpTensor NormalTensor(DType dtype, const Dims& shape, float scale, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(static_cast<size_t>(ElementCount(shape)));
  for (float& value : values) value = normal(random);
  return MakeOpTensor(dtype, shape, values);
}

// state = state * 1664525 + 1013904223 from `seed`; the value is its top 24 bits, signed, times
// `scale`, cast once: the tensors of stored digests.
inline OpTensor CongruentTensor(DType dtype, const Dims& shape, uint32_t seed, float scale) {
  std::vector<float> values(static_cast<size_t>(ElementCount(shape)));
  uint32_t state = seed;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(state >> 8) - (1 << 23)) * scale;
  }
  return MakeOpTensor(dtype, shape, values);
}

// Rows [begin, begin + count) of a tensor whose first dimension counts rows.
inline OpTensor OpRows(const OpTensor& tensor, int64_t begin, int64_t count) {
  OpTensor rows = tensor;
  rows.shape[0] = count;
  const auto size =
      static_cast<int64_t>(tensor.bytes.size()) / (tensor.shape[0] > 0 ? tensor.shape[0] : 1);
  rows.bytes.assign(tensor.bytes.begin() + begin * size,
                    tensor.bytes.begin() + (begin + count) * size);
  return rows;
}

}  // namespace rlk::test
