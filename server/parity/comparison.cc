#include "server/parity/comparison.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/core/fp_environment.h"
#include "kernels/core/status.h"
#include "server/engine/contract_check.h"
#include "server/engine/host_memory.h"
#include "server/parity/digests.h"
#include "server/parity/evidence.h"

namespace rlk::server {
namespace {

using compare::kSegmentElements;

// Between two looks at the clock.
constexpr int64_t kSliceElements = 64 * kSegmentElements;

ComparedSide SideOf(const ParityTensor& tensor, std::string_view role) {
  return {role, tensor.dtype, tensor.shape, std::nullopt, std::nullopt};
}

void SetRoles(Comparison& comparison) {
  switch (comparison.judgment) {
    case Judgment::kAccuracy:
      comparison.left.role = "candidate";
      comparison.right.role = "reference";
      break;
    case Judgment::kInvariance:
      comparison.left.role = "transformed_config";
      comparison.right.role = "canonical_config";
      break;
    case Judgment::kParity:
      comparison.left.role = "left";
      comparison.right.role = "right";
      break;
  }
}

absl::Status CheckOptions(const ComparisonOptions& options, int rank) {
  const bool has_row = options.tolerance.has_value();
  if (options.judgment == Judgment::kAccuracy && !has_row) {
    return InvalidArgument(Reason::kUnknownOption, "options.tolerance", "absent",
                           "an op_class of the tolerance contract",
                           "accuracy is judged by a row of the tolerance contract");
  }
  if (options.judgment == Judgment::kInvariance && has_row) {
    return InvalidArgument(Reason::kUnknownOption, "options.tolerance", "given", "none",
                           "invariance is bitwise and has no tolerance");
  }
  if (!options.axes.empty() && static_cast<int>(options.axes.size()) != rank) {
    return InvalidArgument(Reason::kShapeMismatch, "options.axes",
                           std::to_string(options.axes.size()) + " names",
                           std::to_string(rank) + ", one for each dimension, or none",
                           "the axes are not those of the tensor");
  }
  return absl::OkStatus();
}

constexpr std::string_view ClassName(OpClass op_class) {
  switch (op_class) {
    case OpClass::kElementwise:
      return "elementwise";
    case OpClass::kReduction:
      return "reduction";
    case OpClass::kLogprob:
      return "logprob";
    case OpClass::kAttention:
      return "attention";
  }
  return "";
}

constexpr std::string_view LongDTypeName(DType dtype) {
  return dtype == DType::kF32 ? "float32" : (dtype == DType::kBF16 ? "bfloat16" : "float16");
}

absl::StatusOr<PassRule> RuleOf(const ComparisonOptions& options, DType dtype,
                                const ToleranceContract& contract) {
  PassRule rule;
  if (!options.tolerance || !IsFloat(dtype)) return rule;
  const auto& [op_class, gradient] = *options.tolerance;
  const absl::StatusOr<Tolerance> row = contract.Accuracy(op_class, dtype, gradient);
  if (!row.ok()) {
    return InvalidArgument(Reason::kDtypeNotAllowed, "left.dtype", DTypeName(dtype),
                           "F32, BF16, F16", "the tolerance contract has no row for the dtype");
  }
  rule.bitwise = false;
  rule.row = gradient ? "gradient_accuracy/" : "forward_accuracy/";
  rule.row.append(ClassName(op_class)).append("/").append(LongDTypeName(dtype));
  rule.tolerance_version = contract.version();
  rule.tolerance_sha256 = contract.sha256();
  rule.atol = row->atol;
  rule.rtol = row->rtol;
  return rule;
}

// A reference may be wider than the candidate.
bool SameOrWider(const ComparisonOptions& options, DType left, DType right) {
  if (left == right) return true;
  const bool wider = right == DType::kF64 || (right == DType::kF32 && left != DType::kF64);
  return options.judgment == Judgment::kAccuracy && IsFloat(left) && wider;
}

std::string HexBits(const HostBytes& bytes) {
  constexpr char kHex[] = "0123456789abcdef";
  std::vector<std::byte> raw(static_cast<size_t>(bytes.size));
  Gather(bytes, raw.data());
  std::string text;
  for (size_t i = raw.size(); i > 0; --i) {
    const auto value = static_cast<unsigned>(raw[i - 1]);
    text.push_back(kHex[value >> 4]);
    text.push_back(kHex[value & 15]);
  }
  return text;
}

double ValueOf(DType dtype, const HostBytes& bytes) {
  std::byte raw[8] = {};
  Gather(bytes, raw);
  double value = 0;
  const auto load = [&raw](auto type) {
    std::memcpy(&type, raw, sizeof(type));
    return type;
  };
  switch (dtype) {
    case DType::kI32:
      return load(int32_t{});
    case DType::kI64:
      return static_cast<double>(load(int64_t{}));
    case DType::kU8:
    case DType::kBool:
      return load(uint8_t{});
    default:
      compare::Widen(dtype, raw, 1, &value);
      return value;
  }
}

absl::StatusOr<Mismatch> MakeMismatch(int64_t index, const ParityTensor& left,
                                      const ParityTensor& right) {
  Mismatch mismatch;
  mismatch.flat_index = index;
  const int rank = left.shape.rank();
  mismatch.indices.resize(static_cast<size_t>(rank));
  int64_t rest = index;
  for (int d = rank - 1; d >= 0; --d) {
    mismatch.indices[static_cast<size_t>(d)] = rest % left.shape[d];
    rest /= left.shape[d];
  }
  RLK_ASSIGN_OR_RETURN(TensorReader left_reader, TensorReader::Make(left));
  RLK_ASSIGN_OR_RETURN(TensorReader right_reader, TensorReader::Make(right));
  RLK_ASSIGN_OR_RETURN(const HostBytes a, left_reader.Read(index, 1));
  RLK_ASSIGN_OR_RETURN(const HostBytes b, right_reader.Read(index, 1));
  mismatch.left_bits = HexBits(a);
  mismatch.right_bits = HexBits(b);
  mismatch.left = ValueOf(left.dtype, a);
  mismatch.right = ValueOf(right.dtype, b);
  return mismatch;
}

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
// Of the squares of values near one mean, sums leave this share of the variance to rounding.
constexpr double kSpreadMin = 0x1p-40;

// Of the sums; one side all zero has no direction.
double Cosine(double product, double left_squared, double right_squared) {
  if (left_squared == 0 && right_squared == 0) return 1;
  if (left_squared == 0 || right_squared == 0) return 0;
  return std::clamp(product / (std::sqrt(left_squared) * std::sqrt(right_squared)), -1.0, 1.0);
}

// The cosine of what is left beside the means.
double Pearson(const compare::Sums& sums, double n) {
  const double left = sums.left_squared - sums.left * (sums.left / n);
  const double right = sums.right_squared - sums.right * (sums.right / n);
  if (!(left > kSpreadMin * sums.left_squared && right > kSpreadMin * sums.right_squared)) {
    return kUnknown;
  }
  return Cosine(sums.product - sums.left * (sums.right / n), left, right);
}

ErrorMagnitude MagnitudeOf(const compare::Stats& stats, double relative_floor) {
  using namespace compare;
  ErrorMagnitude magnitude;
  magnitude.relative_floor = relative_floor;
  const auto& counts = stats.counts;
  magnitude.elements = counts[kSignDiffers];
  for (int b = 0; b < kUlpBuckets; ++b) magnitude.elements += counts[kUlp + b];
  if (magnitude.elements == 0) return magnitude;
  const auto n = static_cast<double>(magnitude.elements);
  const Sums& sums = stats.sums;
  magnitude.max_abs = stats.extremes.absolute;
  magnitude.max_rel = stats.extremes.relative;
  magnitude.max_abs_left = stats.extremes.left;
  magnitude.max_abs_right = stats.extremes.right;
  if (magnitude.max_abs_right > 0) {
    magnitude.max_abs_over_max_right = magnitude.max_abs / magnitude.max_abs_right;
  }
  magnitude.mean_abs = sums.error_absolute / n;
  const auto root = [n](double largest, double squared) {
    return SquaresKept(largest, squared) ? std::sqrt(squared / n) : kUnknown;
  };
  magnitude.root_mean_square = root(stats.extremes.absolute, sums.error_squared);
  magnitude.signed_mean = sums.error / n;
  magnitude.magnitude_mean = sums.magnitude / n;
  magnitude.root_mean_square_right = root(stats.extremes.right, sums.right_squared);
  if (counts[kMismatched] == 0 && sums.error_squared == 0) return magnitude;
  const bool kept = SquaresKept(stats.extremes.left, sums.left_squared) &&
                    SquaresKept(stats.extremes.right, sums.right_squared);
  magnitude.cosine = kept ? Cosine(sums.product, sums.left_squared, sums.right_squared) : kUnknown;
  magnitude.pearson = kept ? Pearson(sums, n) : kUnknown;
  return magnitude;
}

// Elements of equal finite bits are at distance 0.
void CompleteHistogram(DType dtype, compare::Stats& stats) {
  using namespace compare;
  if (!IsFloat(dtype)) return;
  stats.counts[kUlp] += stats.compared - stats.counts[kMismatched] - stats.counts[kNanEqual] -
                        stats.counts[kInfiniteEqual];
}

// Two tensors in one place and of one dtype.
struct Sides {
  ParityTensor left, right;
  // The right side's values where it has been rounded to the left one's dtype; else null.
  std::shared_ptr<double[]> wide;
  // Where both lie on one device that can look at them; else null, and both are on the host.
  Inspector* inspector = nullptr;
};

absl::Status Round(DType dtype, Sides& sides) {
  const int64_t count = sides.right.elements();
  const auto size = static_cast<size_t>(std::max<int64_t>(count, 1));
  sides.wide.reset(new (std::nothrow) double[size]);
  const std::shared_ptr<double[]> narrow(new (std::nothrow) double[size]);
  if (sides.wide == nullptr || narrow == nullptr) return HostMemoryError(count * 8);
  compare::Widen(sides.right.dtype, sides.right.data, count, sides.wide.get());
  compare::RoundTo(dtype, sides.wide.get(), count, narrow.get());
  sides.right.dtype = dtype;
  sides.right.data = reinterpret_cast<const std::byte*>(narrow.get());
  sides.right.owner = narrow;
  return absl::OkStatus();
}

// A host tensor beside one on a device is taken there; a reference of another dtype is rounded on
// the host.
absl::StatusOr<Sides> BringTogether(const ParityTensor& left, const ParityTensor& right) {
  Sides sides;
  Device* const device = left.on_host() ? right.device : left.device;
  if (left.dtype == right.dtype && device != nullptr && device->inspector() != nullptr) {
    RLK_ASSIGN_OR_RETURN(sides.left, ToDevice(left, device));
    RLK_ASSIGN_OR_RETURN(sides.right, ToDevice(right, device));
    sides.inspector = device->inspector();
    return sides;
  }
  RLK_ASSIGN_OR_RETURN(sides.left, ToHost(left));
  RLK_ASSIGN_OR_RETURN(sides.right, ToHost(right));
  if (left.dtype != right.dtype) RLK_RETURN_IF_ERROR(Round(left.dtype, sides));
  return sides;
}

absl::StatusOr<compare::Stats> CompareElements(const Sides& sides, const compare::Spec& spec,
                                               ThreadPool* pool, const Interrupt& interrupt) {
  if (sides.inspector != nullptr) {
    return sides.inspector->Compare(spec, sides.left.view(), sides.right.view());
  }
  compare::Stats stats;
  const int64_t elements = sides.left.elements();
  for (int64_t first = 0; first < elements; first += kSliceElements) {
    RLK_RETURN_IF_ERROR(interrupt.Check());
    compare::Accumulate(spec, sides.left.data, sides.right.data, sides.wide.get(), first,
                        std::min(kSliceElements, elements - first), pool, stats);
  }
  return stats;
}

absl::StatusOr<compare::RowStats> CompareRows(const Sides& sides, int rows_max, ThreadPool* pool) {
  const ParityTensor& left = sides.left;
  if (sides.inspector != nullptr) {
    return sides.inspector->CompareRows(left.view(), sides.right.view(), rows_max);
  }
  return compare::CompareRows(left.dtype, left.data, sides.right.data, left.rows(), left.columns(),
                              rows_max, pool);
}

void Decide(Comparison& comparison) {
  PassRule& rule = comparison.rule;
  const compare::Stats& stats = comparison.stats;
  const bool equal = comparison.mismatched() == 0;
  comparison.difference = equal ? Difference::kNothing : Difference::kBits;
  rule.outside = stats.counts[compare::kOutside];
  rule.worst_index = stats.extremes.excess_index;
  rule.worst_excess = rule.worst_index < 0 ? 0 : stats.extremes.excess;
  comparison.passed = rule.bitwise ? equal : rule.outside == 0;
}

// Everything that needs both sides' elements.
absl::Status CompareSides(const Sides& sides, const ComparisonOptions& options,
                          const ComparisonContext& context, const Interrupt& interrupt,
                          Comparison& comparison) {
  const compare::Spec spec = {sides.left.dtype, comparison.rule.atol, comparison.rule.rtol,
                              options.relative_floor};
  RLK_ASSIGN_OR_RETURN(comparison.stats, CompareElements(sides, spec, context.pool, interrupt));
  comparison.looked_at = true;
  CompleteHistogram(sides.left.dtype, comparison.stats);
  comparison.magnitude = MagnitudeOf(comparison.stats, options.relative_floor);
  comparison.compared_on =
      sides.inspector != nullptr ? sides.left.device->info().kind : DeviceKind::kHost;
  Decide(comparison);
  comparison.rows = sides.left.rows();
  comparison.rows_counted = comparison.rows <= compare::kCountedRowsMax;
  RLK_RETURN_IF_ERROR(interrupt.Check());
  if (comparison.mismatched() > 0) {
    RLK_ASSIGN_OR_RETURN(comparison.first_mismatch,
                         MakeMismatch(comparison.stats.first, sides.left, sides.right));
    if (comparison.rows_counted) {
      RLK_ASSIGN_OR_RETURN(comparison.row_stats,
                           CompareRows(sides, options.rows_max, context.pool));
    }
  }
  const compare::RowStats* const rows = comparison.rows_counted ? &comparison.row_stats : nullptr;
  RLK_ASSIGN_OR_RETURN(const TriageEvidence evidence,
                       GatherEvidence(sides.left, sides.right, comparison.stats, rows, interrupt));
  comparison.triage = Classify(evidence);
  return absl::OkStatus();
}

absl::Status AddDigests(const ParityTensor& tensor, int64_t nans, const Interrupt& interrupt,
                        ComparedSide& side) {
  side.canonical_nan_digest = side.digest;
  if (nans == 0) return absl::OkStatus();
  RLK_ASSIGN_OR_RETURN(side.canonical_nan_digest, CanonicalNanDigestOf(tensor, interrupt));
  return absl::OkStatus();
}

absl::StatusOr<Comparison> Incomparable(Comparison comparison, Difference difference,
                                        std::string hint) {
  comparison.difference = difference;
  comparison.passed = false;
  comparison.triage = {TriageClass::kIncomparable, std::move(hint)};
  return comparison;
}

}  // namespace

std::string_view JudgmentName(Judgment judgment) {
  constexpr std::string_view kNames[] = {"accuracy", "invariance", "parity"};
  return kNames[static_cast<size_t>(judgment) - 1];
}

std::string_view DifferenceName(Difference difference) {
  constexpr std::string_view kNames[] = {"nothing", "bits", "shape", "dtype"};
  return kNames[static_cast<size_t>(difference) - 1];
}

absl::StatusOr<Comparison> CompareTensors(const ParityTensor& left, const ParityTensor& right,
                                          const ComparisonOptions& options,
                                          const ComparisonContext& context,
                                          const Interrupt& interrupt) {
  const FpEnvironment environment;
  RLK_RETURN_IF_ERROR(CheckOptions(options, left.shape.rank()));
  Comparison comparison;
  comparison.judgment = options.judgment;
  comparison.axes = options.axes;
  comparison.left = SideOf(left, {});
  comparison.right = SideOf(right, {});
  comparison.magnitude.relative_floor = options.relative_floor;
  SetRoles(comparison);
  RLK_ASSIGN_OR_RETURN(comparison.rule, RuleOf(options, left.dtype, *context.tolerance));
  if (options.digests) {
    RLK_ASSIGN_OR_RETURN(comparison.left.digest, DigestOf(left, interrupt));
    RLK_ASSIGN_OR_RETURN(comparison.right.digest, DigestOf(right, interrupt));
  }
  if (!SameOrWider(options, left.dtype, right.dtype)) {
    return Incomparable(std::move(comparison), Difference::kDtype,
                        "left is " + std::string(DTypeName(left.dtype)) + ", right is " +
                            std::string(DTypeName(right.dtype)));
  }
  if (!(left.shape == right.shape)) {
    return Incomparable(
        std::move(comparison), Difference::kShape,
        "left has shape " + ShapeText(left.shape) + ", right " + ShapeText(right.shape));
  }
  if (left.dtype != right.dtype && left.elements() > kRoundedElementsMax) {
    return InvalidArgument(
        Reason::kLimitExceeded, "right", std::to_string(left.elements()) + " elements",
        "at most " + std::to_string(kRoundedElementsMax) + " of another dtype than the candidate's",
        "the reference is too large to be rounded");
  }
  RLK_ASSIGN_OR_RETURN(const Sides sides, BringTogether(left, right));
  RLK_RETURN_IF_ERROR(CompareSides(sides, options, context, interrupt, comparison));
  if (options.digests) {
    const auto& counts = comparison.stats.counts;
    const int64_t both = counts[compare::kNanEqual] + counts[compare::kNanPayload];
    RLK_RETURN_IF_ERROR(
        AddDigests(left, both + counts[compare::kNanLeft], interrupt, comparison.left));
    RLK_RETURN_IF_ERROR(
        AddDigests(right, both + counts[compare::kNanRight], interrupt, comparison.right));
  }
  return comparison;
}

absl::StatusOr<Comparison> CompareWithDigest(const ParityTensor& left, std::string_view digest,
                                             const ComparisonOptions& options,
                                             const Interrupt& interrupt) {
  if (options.tolerance || options.judgment == Judgment::kAccuracy) {
    return InvalidArgument(Reason::kUnknownOption, "options.tolerance", "given", "none",
                           "a digest has no values: only equal bits pass");
  }
  RLK_RETURN_IF_ERROR(CheckOptions(options, left.shape.rank()));
  Comparison comparison;
  comparison.judgment = options.judgment;
  comparison.left = SideOf(left, {});
  comparison.right = SideOf(left, {});
  SetRoles(comparison);
  const std::optional<Digest> expected = ParseDigest(digest);
  if (!expected) {
    return InvalidArgument(Reason::kMalformedMessage, "right_digest", digest,
                           std::string(kDigestId) + ": and 32 lower-case hex digits",
                           "the text is no digest");
  }
  comparison.right.digest = expected;
  RLK_ASSIGN_OR_RETURN(comparison.left.digest, DigestOf(left, interrupt));
  comparison.rows = left.rows();
  comparison.rows_counted = false;
  comparison.passed = comparison.left.digest == expected;
  if (comparison.passed) {
    // Of other digests nobody knows how many elements differ, nor of what dtype and shape.
    comparison.stats.compared = left.elements();
    comparison.triage = {TriageClass::kNone, "the tensor has the digest"};
    return comparison;
  }
  comparison.right.dtype = DType::kUnspecified;
  comparison.right.shape = {};
  comparison.difference = Difference::kBits;
  comparison.triage = {TriageClass::kUnclassified,
                       "the tensor has another digest, of its bits, its dtype or its shape"};
  return comparison;
}

}  // namespace rlk::server
