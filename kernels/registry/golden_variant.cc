#include "kernels/registry/golden_variant.h"

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/core/fp_environment.h"
#include "kernels/core/status.h"

namespace rlk {
namespace {

// Rounds to a binary format with `exponent_bits` and `fraction_bits` by integer steps alone, so
// that there is one rounding and no way through FP32.
uint32_t RoundToFormat(double x, int exponent_bits, int fraction_bits) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const uint32_t sign = static_cast<uint32_t>(bits >> 63) << (exponent_bits + fraction_bits);
  const uint64_t magnitude = bits & ~(uint64_t{1} << 63);
  const uint32_t infinity = ((1u << exponent_bits) - 1) << fraction_bits;
  if (magnitude > 0x7ff0000000000000u) return (1u << (exponent_bits + fraction_bits)) - 1;
  if (magnitude == 0x7ff0000000000000u) return sign | infinity;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent =
      static_cast<int>(magnitude >> 52) - 1023;  // FP64 subnormals round to 0 below
  uint64_t significand = (magnitude & 0x000fffffffffffffu) | 0x0010000000000000u;
  // Bits to drop: 52 - fraction_bits for a normal result, more for a subnormal one.
  int drop = 52 - fraction_bits;
  const bool subnormal = exponent < 1 - bias;
  if (subnormal) drop += 1 - bias - exponent;
  if (drop > 54) return sign;  // below half of the smallest subnormal
  const uint64_t half = uint64_t{1} << (drop - 1);
  const uint64_t rest = significand & ((half << 1) - 1);
  significand >>= drop;
  if (rest > half || (rest == half && (significand & 1))) ++significand;
  // A carry out of the fraction raises the exponent by itself.
  const uint64_t biased =
      subnormal ? significand
                : significand + (static_cast<uint64_t>(exponent + bias - 1) << fraction_bits);
  return sign | (biased >= infinity ? infinity : static_cast<uint32_t>(biased));
}

absl::Status RoundTo(const double* from, const MutableTensorView& to) {
  const int64_t count = to.elements();
  switch (to.dtype) {
    case DType::kF32:
      for (int64_t i = 0; i < count; ++i) to.as<float>()[i] = RoundF64ToF32(from[i]);
      return absl::OkStatus();
    case DType::kF16:
      for (int64_t i = 0; i < count; ++i) to.as<uint16_t>()[i] = RoundF64ToF16(from[i]);
      return absl::OkStatus();
    case DType::kBF16:
      for (int64_t i = 0; i < count; ++i) to.as<uint16_t>()[i] = RoundF64ToBf16(from[i]);
      return absl::OkStatus();
    default:
      return MakeError(absl::StatusCode::kInternal,
                       {Reason::kInternal, "", std::string(DTypeName(to.dtype)), "F32, F16, BF16"},
                       "the FP64 reference cannot be rounded to this dtype");
  }
}

}  // namespace

float RoundF64ToF32(double x) { return std::bit_cast<float>(RoundToFormat(x, 8, 23)); }
uint16_t RoundF64ToF16(double x) { return static_cast<uint16_t>(RoundToFormat(x, 5, 10)); }
uint16_t RoundF64ToBf16(double x) { return static_cast<uint16_t>(RoundToFormat(x, 8, 7)); }

absl::Status LaunchGoldenRounded(LaunchFn golden, const KernelArgs& args) {
  const FpEnvironment environment;
  std::vector<std::vector<double>> buffers(args.outputs.size());
  std::vector<MutableTensorView> exact(args.outputs.begin(), args.outputs.end());
  for (size_t i = 0; i < exact.size(); ++i) {
    if (!exact[i].present() || exact[i].dtype == DType::kF64) continue;
    buffers[i].resize(static_cast<size_t>(exact[i].elements()));
    exact[i].dtype = DType::kF64;
    exact[i].data = buffers[i].data();
  }
  KernelArgs exact_args = args;
  exact_args.outputs = exact;
  RLK_RETURN_IF_ERROR(golden(exact_args));
  for (size_t i = 0; i < exact.size(); ++i) {
    const MutableTensorView& asked = args.outputs[i];
    if (!asked.present() || asked.dtype == DType::kF64) continue;
    RLK_RETURN_IF_ERROR(RoundTo(buffers[i].data(), asked));
  }
  return absl::OkStatus();
}

}  // namespace rlk
