#include "server/engine/verification.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/core/status.h"

namespace rlk::server {
namespace {

// Reads pieces as one sequence.
class Reader {
 public:
  explicit Reader(const HostBytes& bytes) : bytes_(bytes) { Skip(); }

  bool done() const { return piece_ == bytes_.pieces.size(); }
  std::span<const std::byte> current() const { return bytes_.pieces[piece_].subspan(offset_); }
  void Advance(size_t count) {
    offset_ += count;
    Skip();
  }

 private:
  void Skip() {
    while (piece_ < bytes_.pieces.size() && offset_ == bytes_.pieces[piece_].size()) {
      ++piece_;
      offset_ = 0;
    }
  }

  const HostBytes& bytes_;
  size_t piece_ = 0, offset_ = 0;
};

template <typename T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// Own conversions: a verification that shared the kernels' would share their mistakes.
double F16Value(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  double value = 0;
  if (exponent == 31) {
    value = fraction == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(fraction, -24);
  } else {
    value = std::ldexp(1024 + fraction, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

double ElementValue(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::kF32:
      return Load<float>(at);
    case DType::kF64:
      return Load<double>(at);
    case DType::kF16:
      return F16Value(Load<uint16_t>(at));
    case DType::kBF16:
      return std::bit_cast<float>(static_cast<uint32_t>(Load<uint16_t>(at)) << 16);
    case DType::kI32:
      return Load<int32_t>(at);
    case DType::kI64:
      return static_cast<double>(Load<int64_t>(at));
    case DType::kU8:
    case DType::kBool:
      return Load<uint8_t>(at);
    case DType::kUnspecified:
      break;
  }
  return 0;
}

// The smallest magnitude that rounds to infinity.
double OverflowMagnitude(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0x1p128 - 0x1p103;
    case DType::kF16:
      return 65520;
    case DType::kBF16:
      return 0x1p128 - 0x1p119;
    default:
      return std::numeric_limits<double>::infinity();
  }
}

bool Within(double value, double gold, double overflow, const Tolerance& tolerance) {
  if (std::isnan(value) || std::isnan(gold)) return std::isnan(value) && std::isnan(gold);
  if (std::isinf(value))
    return std::fabs(gold) >= overflow && std::signbit(value) == std::signbit(gold);
  if (std::isinf(gold)) return false;
  return std::fabs(value - gold) <= tolerance.atol + tolerance.rtol * std::fabs(gold);
}

}  // namespace

BitComparison CompareBits(DType dtype, const HostBytes& a, const HostBytes& b) {
  const int64_t element = std::max<int64_t>(DTypeSize(dtype), 1);
  BitComparison comparison;
  comparison.compared = std::max(a.size, b.size) / element;
  if (a.size != b.size) {
    comparison.mismatched = comparison.compared;
    comparison.first = 0;
    return comparison;
  }
  int64_t position = 0;
  int64_t last = -1;  // the last element counted: one element may differ in several bytes
  for (Reader left(a), right(b); !left.done() && !right.done();) {
    const size_t count = std::min(left.current().size(), right.current().size());
    const std::byte* const x = left.current().data();
    const std::byte* const y = right.current().data();
    if (std::memcmp(x, y, count) != 0) {
      for (size_t i = 0; i < count; ++i) {
        if (x[i] == y[i]) continue;
        const int64_t index = (position + static_cast<int64_t>(i)) / element;
        if (index == last) continue;
        last = index;
        if (comparison.first < 0) comparison.first = index;
        ++comparison.mismatched;
      }
    }
    position += static_cast<int64_t>(count);
    left.Advance(count);
    right.Advance(count);
  }
  return comparison;
}

absl::Status RepeatError(const std::string& output, const BitComparison& comparison) {
  const std::string value =
      std::to_string(comparison.mismatched) + " of " + std::to_string(comparison.compared) +
      " elements differ, the first at index " + std::to_string(comparison.first);
  return MakeError(absl::StatusCode::kDataLoss,
                   {Reason::kVerificationFailed, output, value, "0 elements"},
                   "two runs of the same call gave different bits");
}

OutputCheck CompareWithReference(const std::string& output, DType dtype,
                                 std::span<const std::byte> values, std::span<const double> gold,
                                 const Tolerance& tolerance) {
  OutputCheck check;
  check.name = output;
  check.atol = tolerance.atol;
  check.rtol = tolerance.rtol;
  check.compared = static_cast<int64_t>(gold.size());
  const auto element = static_cast<size_t>(DTypeSize(dtype));
  if (values.size() != gold.size() * element) {
    check.mismatched = check.compared;
    return check;
  }
  const double overflow = OverflowMagnitude(dtype);
  for (size_t i = 0; i < gold.size(); ++i) {
    const double value = ElementValue(dtype, values.data() + i * element);
    if (!Within(value, gold[i], overflow, tolerance)) ++check.mismatched;
    if (std::isfinite(gold[i]) && !std::isfinite(value)) ++check.nonfinite;
    const double error = std::fabs(value - gold[i]);
    if (!std::isfinite(error)) continue;
    check.max_abs_error = std::max(check.max_abs_error, error);
    if (gold[i] != 0) {
      check.max_rel_error = std::max(check.max_rel_error, error / std::fabs(gold[i]));
    }
  }
  check.passed = check.mismatched == 0;
  return check;
}

absl::StatusOr<Tolerance> OutputTolerance(const ToleranceContract& contract,
                                          const MethodSignature& signature, DType output) {
  if (!IsFloat(output)) return Tolerance{};
  return contract.Accuracy(signature.op_class, output, signature.direction == Direction::kBackward);
}

absl::Status CheckReferenceAvailable(const Method& method, const CheckedCall& checked,
                                     const Limits& limits, const ToleranceContract& contract) {
  const auto unavailable = [](std::string_view value, std::string_view message) {
    return MakeError(absl::StatusCode::kFailedPrecondition,
                     {Reason::kVerificationUnavailable,
                      "options.verification",
                      "REFERENCE" + std::string(value),
                      {}},
                     message);
  };
  if (method.decl.golden == nullptr) {
    return unavailable("", "the method has no FP64 reference");
  }
  if (checked.elements_max > limits.reference_elements_max) {
    return InvalidArgument(
        Reason::kLimitExceeded, "options.verification",
        std::to_string(checked.elements_max) + " elements",
        "at most " + std::to_string(limits.reference_elements_max) + " (reference_elements_max)",
        "a tensor is too large for REFERENCE");
  }
  for (const PlannedOutput& output : checked.outputs) {
    if (!output.wanted()) continue;
    if (!OutputTolerance(contract, method.signature, output.dtype).ok()) {
      return unavailable(" of " + std::string(DTypeName(output.dtype)),
                         "the tolerance contract has no cell for the output's dtype");
    }
  }
  return absl::OkStatus();
}

}  // namespace rlk::server
