// The BF16 contract of det_linear, written line by line from its text and the law of the
// tensor-core step.
#pragma once

#include <cstring>
#include <vector>

#include "kernels/arith/convert.h"
#include "kernels/arith/tensor_step.h"
#include "tests/ops/det_linear/linear_emulation.h"

namespace rlk::test {

inline std::vector<std::byte> Stored(DType dtype, const std::vector<float>& values) {
  if (dtype == DType::kF32) return StoredF32(values);
  std::vector<std::byte> bytes(values.size() * 2);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t bits = arith::FloatToBf16(values[i]);
    memcpy(&bytes[2 * i], &bits, 2);
  }
  return bytes;
}

inline std::vector<uint16_t> Bits(const OpTensor& tensor) {
  std::vector<uint16_t> bits(tensor.bytes.size() / 2);
  memcpy(bits.data(), tensor.bytes.data(), tensor.bytes.size());
  return bits;
}

// One output of h3-det-linear-bf16-mma-v1 before its bias.
inline float EmulatedBf16Dot(const uint16_t* x, const uint16_t* w, size_t inputs) {
  float total = 0;
  for (size_t s = 0; 32 * s < inputs; ++s) {
    for (size_t u = 0; u < 2; ++u) {
      uint16_t a[16] = {}, b[16] = {};
      size_t count = 0;
      for (size_t q = 0; q < 4; ++q) {
        for (size_t i = 0; i < 4; ++i, ++count) {
          const size_t k = 32 * s + 8 * q + 4 * u + i;
          if (k < inputs) a[count] = x[k], b[count] = w[k];
        }
      }
      total = total + arith::BitsFloat(arith::TensorStep(a, b, 0));
    }
  }
  return total;
}

}  // namespace rlk::test
