// What the FP64 references share: reading elements by the definition of their format, and the check
// of their outputs. It shares no code with the kernels: its own decoding, its own walk over
// strides.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "kernels/core/status.h"
#include "kernels/registry/kernel_args.h"

namespace rlk::golden {

// Value of a float with `exponent_bits` and `fraction_bits`, from its definition.
inline double Decode(uint32_t bits, int exponent_bits, int fraction_bits) {
  const uint32_t fraction = bits & ((1u << fraction_bits) - 1);
  const int exponent = static_cast<int>((bits >> fraction_bits) & ((1u << exponent_bits) - 1));
  const int top = (1 << exponent_bits) - 1;
  const int bias = top >> 1;
  double value;
  if (exponent == top) {
    value = fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                          : std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    value = std::ldexp(fraction, 1 - bias - fraction_bits);
  } else {
    value = std::ldexp(fraction + (1u << fraction_bits), exponent - bias - fraction_bits);
  }
  return (bits >> (exponent_bits + fraction_bits)) & 1u ? -value : value;
}

// The same for a dtype: F32, F16 or BF16.
inline double DecodeAs(DType dtype, uint32_t bits) {
  if (dtype == DType::kF32) return Decode(bits, 8, 23);
  return dtype == DType::kF16 ? Decode(bits, 5, 10) : Decode(bits, 8, 7);
}

// Element `logical_index`, in C order of the shape, of an F32, F16 or BF16 tensor.
inline double Element(const TensorView& tensor, int64_t logical_index) {
  int64_t offset = 0;
  for (int d = tensor.shape.rank() - 1; d >= 0; --d) {
    offset += logical_index % tensor.shape[d] * tensor.strides[d];
    logical_index /= tensor.shape[d];
  }
  const int64_t size = DTypeSize(tensor.dtype);
  uint32_t bits = 0;
  memcpy(&bits, tensor.as<char>() + offset * size, static_cast<size_t>(size));
  return DecodeAs(tensor.dtype, bits);
}

// INTERNAL unless every present output is F64.
inline absl::Status RequireF64(const KernelArgs& args) {
  for (const MutableTensorView& output : args.outputs) {
    if (!output.present() || output.dtype == DType::kF64) continue;
    return MakeError(absl::StatusCode::kInternal,
                     {Reason::kInternal, "", std::string(DTypeName(output.dtype)), "F64"},
                     "the FP64 reference writes F64");
  }
  return absl::OkStatus();
}

}  // namespace rlk::golden
