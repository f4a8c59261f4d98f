#include "server/parity/triage.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <optional>

namespace rlk::server {
namespace {

using compare::RowStats;
using compare::Stats;

// A single flipped bit is found in so few elements that chance alone would not give single bits.
constexpr int64_t kIsolatedMax = 4;
constexpr double kIsolatedShare = 1e-3;
// Rows or columns that one tile has at most.
constexpr int64_t kTileMax = 256;
constexpr int kTileBitsMin = 3;
// e^-20: that many differences at random places would not all lie behind the first one.
constexpr double kPlaceEvidence = 20;
// What share of the error's energy a model may leave unexplained.
constexpr double kUnexplained = 0.05;
constexpr double kUnexplainedByChannel = 0.02;
// A factor for each column always explains a little more than one for all.
constexpr double kMuchLess = 0.2;
// Neighbours in the order of values differ by so little of the spread where the error is a function
// of the value; noise gives 1.
constexpr double kSmooth = 0.1;
constexpr size_t kSampleMin = 64;
constexpr int64_t kSampledRowsMin = 4;
// Share of the mean |error| that is bias, from where on it is one.
constexpr double kBiasShare = 0.3;
constexpr double kBiasSigmas = 8;
// Fewer elements with larger errors show no pattern.
constexpr int64_t kSpreadMin = 8;
constexpr uint64_t kFewUlp = 4;
// Sums in another order flip a share of half-precision results below this, a moved cast more.
constexpr double kManyFlips = 5e-3;
// The relative error of a cast to BF16, and some room.
constexpr double kNarrowCast = 0.02;

template <typename... Args>
std::string Text(const char* format, Args... args) {
  char text[320];
  std::snprintf(text, sizeof(text), format, args...);
  return text;
}

long long Int(int64_t value) { return value; }

// Bits of the significand, the hidden one included.
int Precision(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 53;
    case DType::kF32:
      return 24;
    case DType::kF16:
      return 11;
    default:
      return 8;
  }
}

struct Numbers {
  explicit Numbers(const TriageEvidence& evidence) {
    const Stats& stats = evidence.stats;
    mismatched = stats.counts[compare::kMismatched];
    n = static_cast<double>(std::max<int64_t>(stats.compared, 1));
    share = static_cast<double>(mismatched) / n;
    mean = stats.sums.error / n;
    mean_absolute = stats.sums.error_absolute / n;
    rms = std::sqrt(stats.sums.error_squared / n);
    rms_right = std::sqrt(stats.sums.right_squared / n);
    shrink = stats.sums.magnitude / n;
    unit = std::ldexp(1.0, -Precision(evidence.dtype));
  }
  // Errors whose mean is within what chance gives for independent ones.
  bool biased(double value) const {
    return std::fabs(value) > kBiasSigmas * rms / std::sqrt(n) &&
           std::fabs(value) > kBiasShare * mean_absolute;
  }
  // Of the elements that differ, however few they are.
  double relative_rms() const {
    if (rms_right <= 0 || mismatched == 0) return 0;
    return rms * std::sqrt(n / static_cast<double>(mismatched)) / rms_right;
  }

  int64_t mismatched;
  double n, share, mean, mean_absolute, rms, rms_right, shrink, unit;
};

std::optional<Triage> BySpecialValues(const TriageEvidence& evidence) {
  const auto& counts = evidence.stats.counts;
  const int64_t mismatched = counts[compare::kMismatched];
  if (mismatched == 0) {
    return Triage{TriageClass::kNone,
                  Text("%lld elements compared, all bits equal", Int(evidence.stats.compared))};
  }
  const int64_t unwritten = counts[compare::kUnwrittenLeft] + counts[compare::kUnwrittenRight];
  if (2 * unwritten >= mismatched) {
    return Triage{TriageClass::kUnwritten,
                  Text("%lld of %lld differing elements hold the poison pattern (%lld left, %lld "
                       "right): nobody wrote them",
                       Int(unwritten), Int(mismatched), Int(counts[compare::kUnwrittenLeft]),
                       Int(counts[compare::kUnwrittenRight]))};
  }
  if (counts[compare::kZeroSign] == mismatched) {
    return Triage{TriageClass::kZeroSign,
                  Text("%lld elements are +0 on one side and -0 on the other; nothing else differs",
                       Int(mismatched))};
  }
  if (counts[compare::kNanPayload] == mismatched) {
    return Triage{TriageClass::kNanPayload,
                  Text("%lld elements are NaN on both sides with other payloads; nothing else "
                       "differs",
                       Int(mismatched))};
  }
  const int64_t nan = counts[compare::kNanLeft] + counts[compare::kNanRight];
  const int64_t infinite = counts[compare::kInfiniteLeft] + counts[compare::kInfiniteRight] +
                           counts[compare::kInfiniteSign];
  if (nan + infinite > 0) {
    return Triage{
        TriageClass::kNonfinite,
        Text("NaN in %lld elements on the left and %lld on the right alone, %lld infinities "
             "without their like; the first differing element is %lld: look at the state or the "
             "index there",
             Int(counts[compare::kNanLeft]), Int(counts[compare::kNanRight]), Int(infinite),
             Int(evidence.stats.first))};
  }
  return std::nullopt;
}

std::optional<Triage> ByPattern(const TriageEvidence& evidence, const Numbers& numbers) {
  if (evidence.rows_permuted) {
    return Triage{
        TriageClass::kRowsPermuted,
        Text("the %lld rows that differ are the same on both sides in another order, from "
             "row %lld on",
             Int(evidence.row_stats->mismatched), Int(evidence.row_stats->first))};
  }
  if (numbers.mismatched <= kIsolatedMax && numbers.share <= kIsolatedShare &&
      evidence.stats.counts[compare::kSingleBit] == numbers.mismatched) {
    return Triage{
        TriageClass::kIsolatedBits,
        Text("%lld of %lld elements, a single bit in each, the first at index %lld",
             Int(numbers.mismatched), Int(evidence.stats.compared), Int(evidence.stats.first))};
  }
  return std::nullopt;
}

// One axis: `count` places, those with a difference between first and last.
struct Axis {
  const char* name;
  int64_t size, first, last;
  uint64_t any, all;
  double differences;  // that could lie anywhere
  double places;       // that differ
  bool dense;          // nearly everything from `first` on differs
};

std::optional<Triage> ByAxis(const Axis& axis) {
  if (axis.first < 0 || axis.size < 2) return std::nullopt;
  const int shared = std::countr_zero(axis.any ^ axis.all);
  const bool several = axis.any != axis.all;
  if (several && shared >= kTileBitsMin && (axis.places - 1) * shared * M_LN2 > kPlaceEvidence) {
    return Triage{
        TriageClass::kTileEdge,
        Text("only %ss %lld + a multiple of %lld differ: the same place of every tile", axis.name,
             Int(axis.first % (int64_t{1} << shared)), Int(int64_t{1} << shared))};
  }
  if (axis.last != axis.size - 1 || axis.first == 0) return std::nullopt;
  // So many differences at random places would reach before `first`.
  const double missed =
      -std::log1p(-static_cast<double>(axis.first) / static_cast<double>(axis.size));
  if (axis.differences * missed < kPlaceEvidence) return std::nullopt;
  const int64_t tail = axis.size - axis.first;
  if (tail <= kTileMax && 4 * tail <= axis.size) {
    return Triage{TriageClass::kTileEdge,
                  Text("only the last %lld of %lld %ss differ: the edge of a tile", Int(tail),
                       Int(axis.size), axis.name)};
  }
  if (!axis.dense) return std::nullopt;
  return Triage{
      TriageClass::kFromPosition,
      Text("everything from %s %lld of %lld on differs: the boundary of a chunk or a page",
           axis.name, Int(axis.first), Int(axis.size))};
}

std::optional<Triage> ByPlace(const TriageEvidence& evidence, const Numbers& numbers) {
  if (evidence.row_stats == nullptr) return std::nullopt;
  const RowStats& rows = *evidence.row_stats;
  const auto elements = static_cast<double>(numbers.mismatched);
  const auto differing = static_cast<double>(rows.mismatched);
  const Axis row = {"row", evidence.rows, rows.first, rows.last, rows.row_or, rows.row_and,
                    // Differences of one row are no independent places.
                    differing > 1 ? differing * 4 : elements / 4, differing,
                    differing >= 0.9 * static_cast<double>(evidence.rows - rows.first)};
  if (auto triage = ByAxis(row)) return triage;
  const double area =
      differing * static_cast<double>(evidence.columns - std::max<int64_t>(rows.first_column, 0));
  const Axis column = {"column",         evidence.columns, rows.first_column,
                       rows.last_column, rows.column_or,   rows.column_and,
                       elements,         elements,         elements >= 0.5 * area};
  return ByAxis(column);
}

// Energy that left = factor * right leaves, over the error's.
struct Fit {
  double factor = 1, unexplained = 1;
};
Fit FactorFit(double left_squared, double right_squared, double product, double error_squared) {
  if (right_squared <= 0 || error_squared <= 0) return {};
  const double factor = product / right_squared;
  const double rest = left_squared - product * factor;
  return {factor, std::max(rest, 0.0) / error_squared};
}

// A factor for each column, over the sampled rows.
struct ChannelFit {
  double least = 0, most = 0, unexplained = 1;
};
ChannelFit FitChannels(const TriageEvidence& evidence) {
  ChannelFit fit;
  const int64_t columns = evidence.sampled_columns;
  if (columns < 2) return fit;
  const int64_t rows = static_cast<int64_t>(evidence.sampled_rows.size()) / columns;
  if (rows < kSampledRowsMin) return fit;
  double rest = 0, errors = 0;
  for (int64_t c = 0; c < columns; ++c) {
    double left_squared = 0, right_squared = 0, product = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const auto [left, right] = evidence.sampled_rows[static_cast<size_t>(r * columns + c)];
      left_squared += left * left;
      right_squared += right * right;
      product += left * right;
      errors += (left - right) * (left - right);
    }
    const double factor = right_squared > 0 ? product / right_squared : 1;
    rest += std::max(left_squared - product * factor, 0.0);
    fit.least = c == 0 ? factor : std::min(fit.least, factor);
    fit.most = c == 0 ? factor : std::max(fit.most, factor);
  }
  if (errors > 0) fit.unexplained = rest / errors;
  return fit;
}

// One factor for all, or one for each column where that says much more.
std::optional<Triage> ByFactor(const TriageEvidence& evidence, const Numbers& numbers) {
  const compare::Sums& sums = evidence.stats.sums;
  const Fit fit =
      FactorFit(sums.left_squared, sums.right_squared, sums.product, sums.error_squared);
  const ChannelFit channels = FitChannels(evidence);
  // Columns whose factors are the same but for rounding have one for all.
  const double largest = std::max(std::fabs(channels.most), std::fabs(channels.least));
  const bool apart = channels.most - channels.least > 4 * numbers.unit * largest;
  if (apart && channels.unexplained <= kUnexplainedByChannel &&
      channels.unexplained <= kMuchLess * fit.unexplained) {
    return Triage{
        TriageClass::kChannelFactor,
        Text("each column has a factor of its own (%.6g to %.6g, which explains %.1f %% of the "
             "error): the convention of a weight or of its offset",
             channels.least, channels.most, 100 * (1 - channels.unexplained))};
  }
  if (fit.unexplained > kUnexplained || std::fabs(fit.factor - 1) <= 4 * numbers.unit) {
    return std::nullopt;
  }
  return Triage{TriageClass::kConstantFactor,
                Text("left is %.9g times right, which explains %.1f %% of the error", fit.factor,
                     100 * (1 - fit.unexplained))};
}

double Roughness(std::vector<ValuePair> sample, bool by_left) {
  std::sort(sample.begin(), sample.end(), [by_left](const ValuePair& a, const ValuePair& b) {
    return by_left ? a.left < b.left : a.right < b.right;
  });
  const auto error = [&](size_t i) { return sample[i].left - sample[i].right; };
  double mean = 0, steps = 0, spread = 0;
  for (size_t i = 0; i < sample.size(); ++i) mean += error(i);
  mean /= static_cast<double>(sample.size());
  for (size_t i = 0; i < sample.size(); ++i) {
    spread += (error(i) - mean) * (error(i) - mean);
    if (i > 0) steps += (error(i) - error(i - 1)) * (error(i) - error(i - 1));
  }
  return spread > 0 ? steps / (2 * spread) : 1;
}

std::optional<Triage> ByModel(const TriageEvidence& evidence, const Numbers& numbers) {
  const double variance = numbers.rms * numbers.rms - numbers.mean * numbers.mean;
  if (variance <= kUnexplained * numbers.mean * numbers.mean) {
    return Triage{TriageClass::kConstantOffset,
                  Text("left is right plus %.9g, give or take %.3g", numbers.mean,
                       std::sqrt(std::max(variance, 0.0)))};
  }
  if (auto triage = ByFactor(evidence, numbers)) return triage;
  if (evidence.sample.size() < kSampleMin) return std::nullopt;
  const double roughness =
      std::min(Roughness(evidence.sample, false), Roughness(evidence.sample, true));
  if (roughness > kSmooth) return std::nullopt;
  return Triage{TriageClass::kElementwiseFunction,
                Text("the error is a function of the value (roughness %.3g, noise has 1), at most "
                     "%.6g: a function of each element that one side leaves out or applies twice",
                     roughness, evidence.stats.extremes.absolute)};
}

Triage BySize(const TriageEvidence& evidence, const Numbers& numbers) {
  const double relative = numbers.relative_rms();
  const std::string sizes = Text(
      "%.3g %% of the elements differ, at most %llu ULP, RMS of their errors %.3g of RMS right, "
      "signed "
      "mean %.3g, mean of |left| - |right| %.3g",
      100 * numbers.share, static_cast<unsigned long long>(evidence.stats.extremes.ulp), relative,
      numbers.mean, numbers.shrink);
  if (numbers.mismatched < kSpreadMin && evidence.stats.extremes.ulp > kFewUlp) {
    return {TriageClass::kUnclassified, sizes + ": too few elements for a pattern"};
  }
  const int precision = Precision(evidence.dtype);
  const bool half = precision <= 11;
  // Half precision shows what happened before its own rounding as flips of its last place.
  const double small = half ? 16 * numbers.unit : std::ldexp(1.0, 7 - precision);
  const double narrow = half ? small : kNarrowCast;
  if (relative <= narrow && numbers.biased(numbers.shrink)) {
    return {
        TriageClass::kTruncation,
        sizes + (numbers.shrink < 0 ? ": the left side shrinks toward zero, as truncation does"
                                    : ": the right side shrinks toward zero, as truncation does")};
  }
  if (numbers.biased(numbers.mean)) return {TriageClass::kUnclassified, sizes};
  if (relative <= small && (!half || numbers.share < kManyFlips)) {
    return {TriageClass::kReductionOrder,
            sizes + ": no bias; the order of a sum, or the accumulator it was made in"};
  }
  if (relative <= narrow && numbers.share >= kManyFlips) {
    return {TriageClass::kRoundingPlace,
            sizes + ": no bias; a cast to a narrower dtype in another place"};
  }
  return {TriageClass::kUnclassified, sizes};
}

}  // namespace

std::string_view TriageName(TriageClass triage) {
  constexpr std::string_view kNames[] = {"unspecified",
                                         "none",
                                         "incomparable",
                                         "zero_sign",
                                         "nan_payload",
                                         "unwritten",
                                         "nonfinite",
                                         "isolated_bits",
                                         "rows_permuted",
                                         "tile_edge",
                                         "from_position",
                                         "constant_offset",
                                         "constant_factor",
                                         "channel_factor",
                                         "elementwise_function",
                                         "truncation",
                                         "reduction_order",
                                         "rounding_place",
                                         "batch_dependent",
                                         "not_repeatable",
                                         "unclassified"};
  const auto index = static_cast<size_t>(triage);
  return index < std::size(kNames) ? kNames[index] : kNames[0];
}

Triage Classify(const TriageEvidence& evidence) {
  if (auto triage = BySpecialValues(evidence)) return *triage;
  const Numbers numbers(evidence);
  if (auto triage = ByPattern(evidence, numbers)) return *triage;
  if (auto triage = ByPlace(evidence, numbers)) return *triage;
  const compare::Stats& stats = evidence.stats;
  const bool models = IsFloat(evidence.dtype) &&
                      compare::SquaresKept(stats.extremes.absolute, stats.sums.error_squared) &&
                      compare::SquaresKept(stats.extremes.left, stats.sums.left_squared) &&
                      compare::SquaresKept(stats.extremes.right, stats.sums.right_squared);
  if (!models) {
    return {TriageClass::kUnclassified,
            Text("%lld of %lld elements differ, the first at index %lld", Int(numbers.mismatched),
                 Int(evidence.stats.compared), Int(evidence.stats.first))};
  }
  if (auto triage = ByModel(evidence, numbers)) return *triage;
  return BySize(evidence, numbers);
}

}  // namespace rlk::server
