// FP64 reference. It shares no code with the kernels: its own decoding, its own walk over strides.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "kernels/core/fp_environment.h"
#include "kernels/core/status.h"
#include "kernels/ops/final_logit_softcap/final_logit_softcap.h"

namespace rlk {
namespace {

// Value of a float with `exponent_bits` and `fraction_bits`, from its definition.
double Decode(uint32_t bits, int exponent_bits, int fraction_bits) {
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

double Element(const TensorView& tensor, int64_t logical_index) {
  int64_t offset = 0;
  for (int d = tensor.shape.rank() - 1; d >= 0; --d) {
    offset += logical_index % tensor.shape[d] * tensor.strides[d];
    logical_index /= tensor.shape[d];
  }
  const char* at = tensor.as<char>() + offset * DTypeSize(tensor.dtype);
  if (tensor.dtype == DType::kF32) {
    uint32_t bits;
    memcpy(&bits, at, sizeof(bits));
    return Decode(bits, 8, 23);
  }
  uint16_t bits;
  memcpy(&bits, at, sizeof(bits));
  return tensor.dtype == DType::kF16 ? Decode(bits, 5, 10) : Decode(bits, 8, 7);
}

absl::Status RequireF64(const MutableTensorView& output) {
  if (output.dtype == DType::kF64) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInternal,
                   {Reason::kInternal, "", std::string(DTypeName(output.dtype)), "F64"},
                   "the FP64 reference writes F64");
}

}  // namespace

absl::Status SoftcapForwardGolden(const KernelArgs& args) {
  const FpEnvironment environment;
  const TensorView& x = args.Input("x");
  const MutableTensorView& y = args.Output("y");
  RLK_RETURN_IF_ERROR(RequireF64(y));
  const double softcap = args.F32("softcap");
  for (int64_t i = 0; i < y.elements(); ++i) {
    y.as<double>()[i] = softcap * std::tanh(Element(x, i) / softcap);
  }
  return absl::OkStatus();
}

absl::Status SoftcapBackwardGolden(const KernelArgs& args) {
  const FpEnvironment environment;
  const TensorView& x = args.Input("x");
  const TensorView& grad_y = args.Input("grad_y");
  const MutableTensorView& grad_x = args.Output("grad_x");
  RLK_RETURN_IF_ERROR(RequireF64(grad_x));
  const double softcap = args.F32("softcap");
  for (int64_t i = 0; i < grad_x.elements(); ++i) {
    const double cosh = std::cosh(Element(x, i) / softcap);
    grad_x.as<double>()[i] = Element(grad_y, i) * (1.0 / (cosh * cosh));
  }
  return absl::OkStatus();
}

}  // namespace rlk
