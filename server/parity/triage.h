// What a difference looks like: a hint where to look, from the numbers of a comparison.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/compare/compare.h"
#include "kernels/core/dtype.h"

namespace rlk::server {

// The numbers are those of rlk.v1.TriageClass.
enum class TriageClass : uint8_t {
  kNone = 1,
  kIncomparable = 2,
  kZeroSign = 3,
  kNanPayload = 4,
  kUnwritten = 5,
  kNonfinite = 6,
  kIsolatedBits = 7,
  kRowsPermuted = 8,
  kTileEdge = 9,
  kFromPosition = 10,
  kConstantOffset = 11,
  kConstantFactor = 12,
  kChannelFactor = 13,
  kElementwiseFunction = 14,
  kTruncation = 15,
  kReductionOrder = 16,
  kRoundingPlace = 17,
  kBatchDependent = 18,
  kNotRepeatable = 19,
  kUnclassified = 20,
};

// "rows_permuted", ...
std::string_view TriageName(TriageClass triage);

struct Triage {
  TriageClass triage = TriageClass::kNone;
  std::string hint;
};

struct ValuePair {
  double left = 0, right = 0;
};

// All that the classes are told from.
struct TriageEvidence {
  DType dtype = DType::kUnspecified;
  int64_t rows = 0, columns = 0;
  compare::Stats stats;
  // Null where there are too many rows to count each.
  const compare::RowStats* row_stats = nullptr;
  // The rows that differ are the same on both sides, in another order.
  bool rows_permuted = false;
  // Spread over the tensor, finite on both sides.
  std::vector<ValuePair> sample;
  // Whole rows or their beginnings, [row][column]; a pair that is not finite is (0, 0).
  int64_t sampled_columns = 0;
  std::vector<ValuePair> sampled_rows;
};

// For tensors of one shape and dtype. Pure.
Triage Classify(const TriageEvidence& evidence);

}  // namespace rlk::server
