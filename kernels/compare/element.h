// One pair of elements, for host and device: what the two are to each other. Internal to this
// folder.
#pragma once

#include <cstdint>

#include "kernels/arith/convert.h"
#include "kernels/arith/scalar.h"
#include "kernels/compare/compare.h"
#include "kernels/core/dtype.h"

namespace rlk::compare {

// kMagnitude: the bits below the sign; kInfinity: those of infinity.
template <DType dtype>
struct Format;
template <>
struct Format<DType::kF32> {
  using Bits = uint32_t;
  static constexpr bool kFloat = true;
  static constexpr Bits kMagnitude = 0x7fffffffu, kInfinity = 0x7f800000u;
  RLK_HD double Value(Bits bits) { return static_cast<double>(arith::BitsFloat(bits)); }
};
template <>
struct Format<DType::kF16> {
  using Bits = uint16_t;
  static constexpr bool kFloat = true;
  static constexpr Bits kMagnitude = 0x7fffu, kInfinity = 0x7c00u;
  RLK_HD double Value(Bits bits) {
#if defined(__CUDA_ARCH__)
    // Exact, like the integer form below, and one instruction.
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return static_cast<double>(value);
#else
    return static_cast<double>(arith::F16ToFloat(bits));
#endif
  }
};
template <>
struct Format<DType::kBF16> {
  using Bits = uint16_t;
  static constexpr bool kFloat = true;
  static constexpr Bits kMagnitude = 0x7fffu, kInfinity = 0x7f80u;
  RLK_HD double Value(Bits bits) { return static_cast<double>(arith::Bf16ToFloat(bits)); }
};
template <>
struct Format<DType::kF64> {
  using Bits = uint64_t;
  static constexpr bool kFloat = true;
  static constexpr Bits kMagnitude = 0x7fffffffffffffffull, kInfinity = 0x7ff0000000000000ull;
  RLK_HD double Value(Bits bits) {
#if defined(__CUDA_ARCH__)
    return __longlong_as_double(static_cast<long long>(bits));
#else
    return __builtin_bit_cast(double, bits);
#endif
  }
};
// Dtypes without values of their own: bits.
template <typename BitsType>
struct BitsFormat {
  using Bits = BitsType;
  static constexpr bool kFloat = false;
  static constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}), kInfinity = kMagnitude;
  RLK_HD double Value(Bits) { return 0; }
};
template <>
struct Format<DType::kI32> : BitsFormat<uint32_t> {};
template <>
struct Format<DType::kI64> : BitsFormat<uint64_t> {};
template <>
struct Format<DType::kU8> : BitsFormat<uint8_t> {};
template <>
struct Format<DType::kBool> : BitsFormat<uint8_t> {};

template <typename F>
struct ElementLayout {
  static constexpr int kSize = sizeof(typename F::Bits);
  // Elements of one lane in one step.
  static constexpr int kVector = kVectorBytes / kSize;
  static constexpr int kStepElements = kVector * kLanes;
  static constexpr int kSteps = static_cast<int>(kBlockElements) / kStepElements;
};

RLK_HD double AbsoluteOf(double x) { return x < 0 ? -x : x; }

RLK_HD int BitCount(uint64_t bits) {
#if defined(__CUDA_ARCH__)
  return __popcll(bits);
#else
  return __builtin_popcountll(bits);
#endif
}

RLK_HD int BucketOf(uint64_t distance) {
  if (distance <= 1) return static_cast<int>(distance);
#if defined(__CUDA_ARCH__)
  const int width = 64 - __clzll(static_cast<long long>(distance - 1));
#else
  const int width = 64 - __builtin_clzll(distance - 1);
#endif
  return width + 1 < kUlpBuckets - 1 ? width + 1 : kUlpBuckets - 1;
}

// Every byte the poison byte. One byte alone is no pattern.
template <typename F>
RLK_HD bool Unwritten(typename F::Bits bits) {
  constexpr auto kPattern = static_cast<typename F::Bits>(0xA5A5A5A5A5A5A5A5ull);
  return sizeof(bits) > 1 && bits == kPattern;
}

template <typename F>
RLK_HD bool Finite(typename F::Bits bits) {
  return F::kFloat && (bits & F::kMagnitude) < F::kInfinity;
}

// Bits that are equal on both sides: what is counted of them.
template <typename F, typename Sink>
RLK_HD void CountEqual(typename F::Bits bits, Sink& sink) {
  if (Unwritten<F>(bits)) sink.Count(kUnwrittenEqual);
  if (!F::kFloat || Finite<F>(bits)) return;
  sink.Count((bits & F::kMagnitude) > F::kInfinity ? kNanEqual : kInfiniteEqual);
}

// Bits that differ, all but magnitudes of errors. The sink takes Count(counter) and
// Distance(distance).
template <typename F, typename Sink>
RLK_HD void CountMismatch(typename F::Bits left, typename F::Bits right, Sink& sink) {
  using Bits = typename F::Bits;
  sink.Count(kMismatched);
  const auto changed = static_cast<Bits>(left ^ right);
  if (BitCount(changed) == 1) sink.Count(kSingleBit);
  if (Unwritten<F>(left)) sink.Count(kUnwrittenLeft);
  if (Unwritten<F>(right)) sink.Count(kUnwrittenRight);
  if (!F::kFloat) return;
  const auto a = static_cast<Bits>(left & F::kMagnitude);
  const auto b = static_cast<Bits>(right & F::kMagnitude);
  const bool nan_left = a > F::kInfinity, nan_right = b > F::kInfinity;
  if (nan_left || nan_right) {
    sink.Count(!nan_right ? kNanLeft : (!nan_left ? kNanRight : kNanPayload));
    if (nan_left != nan_right) sink.Count(kOutside);
    return;
  }
  if (a == F::kInfinity || b == F::kInfinity) {
    sink.Count(a != b ? (a == F::kInfinity ? kInfiniteLeft : kInfiniteRight) : kInfiniteSign);
    sink.Count(kOutside);
    return;
  }
  const bool signs = (changed & static_cast<Bits>(~F::kMagnitude)) != 0;
  if (a == 0 && b == 0) sink.Count(kZeroSign);
  const uint64_t wide_a = a, wide_b = b;
  const uint64_t distance =
      signs ? wide_a + wide_b : (wide_a > wide_b ? wide_a - wide_b : wide_b - wide_a);
  if (signs && a != 0 && b != 0) {
    sink.Count(kSignDiffers);
  } else {
    sink.Count(static_cast<Counter>(kUlp + BucketOf(distance)));
  }
  sink.Distance(distance);
}

// Two finite values into the sums of one lane.
RLK_HD void AddValues(double left, double right, Sums& sums) {
  const double error = left - right;
  sums.left = sums.left + left;
  sums.right = sums.right + right;
  sums.left_squared = sums.left_squared + left * left;
  sums.right_squared = sums.right_squared + right * right;
  sums.product = sums.product + left * right;
  sums.error = sums.error + error;
  sums.error_absolute = sums.error_absolute + AbsoluteOf(error);
  sums.error_squared = sums.error_squared + error * error;
  sums.magnitude = sums.magnitude + (AbsoluteOf(left) - AbsoluteOf(right));
}

RLK_HD void AddSums(const Sums& from, Sums& to) {
  to.left = to.left + from.left;
  to.right = to.right + from.right;
  to.left_squared = to.left_squared + from.left_squared;
  to.right_squared = to.right_squared + from.right_squared;
  to.product = to.product + from.product;
  to.error = to.error + from.error;
  to.error_absolute = to.error_absolute + from.error_absolute;
  to.error_squared = to.error_squared + from.error_squared;
  to.magnitude = to.magnitude + from.magnitude;
}

// What the sums of a block are whose sides are equal, from those of the right one.
RLK_HD Sums EqualSums(double sum, double squared) {
  Sums sums;
  sums.left = sums.right = sum;
  sums.left_squared = sums.right_squared = sums.product = squared;
  return sums;
}

// True where the error is outside.
RLK_HD bool AddError(double left, double right, int64_t index, double atol, double rtol,
                     double relative_floor, Extremes& extremes) {
  const double magnitude = AbsoluteOf(right);
  const double error = AbsoluteOf(left - right);
  if (error > extremes.absolute) extremes.absolute = error;
  const double relative = error / (magnitude > relative_floor ? magnitude : relative_floor);
  if (relative > extremes.relative) extremes.relative = relative;
  const double allowed = atol + rtol * magnitude;
  if (error != 0 && error - allowed > extremes.excess) {
    extremes.excess = error - allowed;
    extremes.excess_index = index;
  }
  return error > allowed;
}

// Merges what a later part found: of equal excesses the earlier stays.
RLK_HD void MergeExtremes(const Extremes& later, Extremes& total) {
  if (later.left > total.left) total.left = later.left;
  if (later.right > total.right) total.right = later.right;
  if (later.absolute > total.absolute) total.absolute = later.absolute;
  if (later.relative > total.relative) total.relative = later.relative;
  if (later.ulp > total.ulp) total.ulp = later.ulp;
  if (later.excess > total.excess ||
      (later.excess == total.excess && later.excess_index < total.excess_index)) {
    total.excess = later.excess;
    total.excess_index = later.excess_index;
  }
}

// Calls f with the Format of the dtype; with that of U8 where there is none.
template <typename Function>
auto WithFormat(DType dtype, const Function& f) {
  switch (dtype) {
    case DType::kF32:
      return f(Format<DType::kF32>());
    case DType::kF16:
      return f(Format<DType::kF16>());
    case DType::kBF16:
      return f(Format<DType::kBF16>());
    case DType::kF64:
      return f(Format<DType::kF64>());
    case DType::kI32:
      return f(Format<DType::kI32>());
    case DType::kI64:
      return f(Format<DType::kI64>());
    case DType::kBool:
    case DType::kU8:
    case DType::kUnspecified:
      break;
  }
  return f(Format<DType::kU8>());
}

}  // namespace rlk::compare
