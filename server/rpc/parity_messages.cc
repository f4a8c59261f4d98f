#include "server/rpc/parity_messages.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/core/status.h"
#include "proto/wire/call_parts.h"

namespace rlk::server {
namespace {

constexpr int kRowsListedMax = 64;
constexpr int kRowsListedDefault = 8;
constexpr double kRelativeFloorDefault = 1e-12;

int64_t Saturated(uint64_t value) {
  return static_cast<int64_t>(std::min<uint64_t>(value, INT64_MAX));
}

void FillSide(const ComparedSide& side, rlk::v1::ComparedTensor& out) {
  out.set_role(std::string(side.role));
  out.set_dtype(static_cast<rlk::v1::DataType>(side.dtype));
  for (const int64_t size : side.shape) out.add_shape(size);
  if (side.digest) out.set_digest(side.digest->Text());
  if (!side.canonical_nan_digest) return;
  out.set_canonical_nan_digest(side.canonical_nan_digest->Text());
  out.set_nan_payloads(side.digest != side.canonical_nan_digest);
}

void FillCounts(const compare::Stats& stats, rlk::v1::ComparisonCounts& out) {
  using namespace compare;
  out.set_compared(stats.compared);
  const auto& counts = stats.counts;
  out.set_mismatched(counts[kMismatched]);
  out.set_zero_sign(counts[kZeroSign]);
  out.set_nan_left_only(counts[kNanLeft]);
  out.set_nan_right_only(counts[kNanRight]);
  out.set_nan_payload(counts[kNanPayload]);
  out.set_infinite_left_only(counts[kInfiniteLeft]);
  out.set_infinite_right_only(counts[kInfiniteRight]);
  out.set_infinite_sign(counts[kInfiniteSign]);
  out.set_unwritten_left(counts[kUnwrittenLeft]);
  out.set_unwritten_right(counts[kUnwrittenRight]);
  out.set_single_bit(counts[kSingleBit]);
  out.set_nan_equal(counts[kNanEqual]);
  out.set_infinite_equal(counts[kInfiniteEqual]);
  out.set_unwritten_equal(counts[kUnwrittenEqual]);
}

void FillMismatch(const Comparison& comparison, rlk::v1::Mismatch& out) {
  const Mismatch& mismatch = *comparison.first_mismatch;
  out.set_flat_index(mismatch.flat_index);
  for (size_t d = 0; d < mismatch.indices.size(); ++d) {
    auto* coordinate = out.add_coordinates();
    if (d < comparison.axes.size()) coordinate->set_axis(comparison.axes[d]);
    coordinate->set_index(mismatch.indices[d]);
  }
  out.set_left_bits(mismatch.left_bits);
  out.set_right_bits(mismatch.right_bits);
  out.set_left_value(mismatch.left);
  out.set_right_value(mismatch.right);
}

void FillRows(const Comparison& comparison, rlk::v1::ComparisonRows& out) {
  const compare::RowStats& rows = comparison.row_stats;
  out.set_rows(comparison.rows);
  out.set_counted(comparison.rows_counted);
  if (rows.mismatched == 0) return;
  out.set_mismatched(rows.mismatched);
  out.set_first(rows.first);
  out.set_last(rows.last);
  out.set_first_column(rows.first_column);
  out.set_last_column(rows.last_column);
  for (const compare::RowMismatch& row : rows.worst) {
    auto* worst = out.add_worst();
    worst->set_row(row.row);
    worst->set_mismatched(row.mismatched);
  }
}

void FillHistogram(const Comparison& comparison, rlk::v1::UlpHistogram& out) {
  using namespace compare;
  if (!IsFloat(comparison.left.dtype) || !comparison.looked_at) return;
  const auto& counts = comparison.stats.counts;
  out.set_max(Saturated(comparison.stats.extremes.ulp));
  for (int b = 0; b < kUlpBuckets; ++b) {
    auto* bucket = out.add_buckets();
    bucket->set_at_least(Saturated(BucketFirst(b)));
    bucket->set_at_most(Saturated(BucketLast(b)));
    bucket->set_elements(counts[kUlp + b]);
  }
  out.set_sign_differs(counts[kSignDiffers]);
  out.set_not_finite(counts[kNanLeft] + counts[kNanRight] + counts[kNanPayload] +
                     counts[kInfiniteLeft] + counts[kInfiniteRight] + counts[kInfiniteSign]);
}

void FillMagnitude(const ErrorMagnitude& magnitude, rlk::v1::ErrorMagnitude& out) {
  out.set_elements(magnitude.elements);
  out.set_max_abs(magnitude.max_abs);
  out.set_max_rel(magnitude.max_rel);
  out.set_relative_floor(magnitude.relative_floor);
  out.set_max_abs_left(magnitude.max_abs_left);
  out.set_max_abs_right(magnitude.max_abs_right);
  out.set_max_abs_over_max_right(magnitude.max_abs_over_max_right);
  out.set_mean_abs(magnitude.mean_abs);
  out.set_root_mean_square(magnitude.root_mean_square);
  out.set_signed_mean(magnitude.signed_mean);
  out.set_magnitude_mean(magnitude.magnitude_mean);
  out.set_cosine(magnitude.cosine);
  out.set_pearson(magnitude.pearson);
  out.set_root_mean_square_right(magnitude.root_mean_square_right);
}

void FillRule(const PassRule& rule, rlk::v1::PassRule& out) {
  out.set_bitwise(rule.bitwise);
  if (rule.bitwise) return;
  out.set_row(rule.row);
  out.set_tolerance_contract_version(rule.tolerance_version);
  out.set_tolerance_contract_sha256(rule.tolerance_sha256);
  out.set_atol(rule.atol);
  out.set_rtol(rule.rtol);
  out.set_outside(rule.outside);
  out.set_worst_excess(rule.worst_excess);
  out.set_worst_index(std::max<int64_t>(rule.worst_index, 0));
}

}  // namespace

absl::StatusOr<ComparisonOptions> FromProto(const rlk::v1::ComparisonOptions& options,
                                            std::string_view field, const Limits& limits) {
  const auto name = [field](const char* part) { return std::string(field) + "." + part; };
  ComparisonOptions result;
  if (options.judgment() != rlk::v1::JUDGMENT_UNSPECIFIED) {
    result.judgment = static_cast<Judgment>(options.judgment());
  }
  if (options.has_tolerance()) {
    if (options.tolerance().op_class() == rlk::v1::OP_CLASS_UNSPECIFIED) {
      return InvalidArgument(Reason::kUnknownOption, name("tolerance.op_class"), "unspecified",
                             "ELEMENTWISE, REDUCTION, LOGPROB, ATTENTION",
                             "the row needs an operator class");
    }
    result.tolerance = ToleranceRow{static_cast<OpClass>(options.tolerance().op_class()),
                                    options.tolerance().gradient()};
  }
  if (options.axes_size() > limits.rank_max) {
    return InvalidArgument(
        Reason::kLimitExceeded, name("axes"), std::to_string(options.axes_size()),
        "at most " + std::to_string(limits.rank_max) + " (rank_max)", "too many axes");
  }
  for (const std::string& axis : options.axes()) {
    RLK_RETURN_IF_ERROR(wire::CheckText(name("axes"), axis, limits));
    result.axes.push_back(axis);
  }
  const double floor = options.relative_floor();
  if (!std::isfinite(floor) || floor < 0) {
    return InvalidArgument(Reason::kAttributeOutOfRange, name("relative_floor"),
                           std::to_string(floor), "a finite number of at least 0",
                           "the floor of relative errors is out of range");
  }
  result.relative_floor = floor == 0 ? kRelativeFloorDefault : floor;
  if (options.rows_max() < 0 || options.rows_max() > kRowsListedMax) {
    return InvalidArgument(Reason::kLimitExceeded, name("rows_max"),
                           std::to_string(options.rows_max()),
                           "0 to " + std::to_string(kRowsListedMax), "too many rows to list");
  }
  result.rows_max = options.rows_max() == 0 ? kRowsListedDefault : options.rows_max();
  result.digests = !options.without_digests();
  return result;
}

void FillComparison(const Comparison& comparison, rlk::v1::Comparison& out) {
  out.set_judgment(static_cast<rlk::v1::Judgment>(comparison.judgment));
  out.set_passed(comparison.passed);
  out.set_difference(static_cast<rlk::v1::Difference>(comparison.difference));
  FillSide(comparison.left, *out.mutable_left());
  FillSide(comparison.right, *out.mutable_right());
  FillCounts(comparison.stats, *out.mutable_counts());
  if (comparison.first_mismatch) FillMismatch(comparison, *out.mutable_first_mismatch());
  FillRows(comparison, *out.mutable_rows());
  FillHistogram(comparison, *out.mutable_ulp());
  FillMagnitude(comparison.magnitude, *out.mutable_magnitude());
  FillRule(comparison.rule, *out.mutable_rule());
  out.mutable_triage()->set_triage_class(
      static_cast<rlk::v1::TriageClass>(comparison.triage.triage));
  out.mutable_triage()->set_hint(comparison.triage.hint);
  out.set_compared_on(comparison.compared_on == DeviceKind::kCuda ? "cuda" : "cpu");
}

}  // namespace rlk::server
