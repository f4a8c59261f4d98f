// Two tensors against each other: what is equal, what differs, where and how, and whether that
// passes. Plain structs; rlk.v1.Comparison has the same fields.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/compare/compare.h"
#include "kernels/core/parallel.h"
#include "kernels/registry/signature.h"
#include "server/engine/tolerance.h"
#include "server/parity/interrupt.h"
#include "server/parity/parity_tensor.h"
#include "server/parity/triage.h"

namespace rlk::server {

// The numbers are those of rlk.v1.
enum class Judgment : uint8_t { kAccuracy = 1, kInvariance = 2, kParity = 3 };
enum class Difference : uint8_t { kNothing = 1, kBits = 2, kShape = 3, kDtype = 4 };

std::string_view JudgmentName(Judgment judgment);        // "accuracy", ...
std::string_view DifferenceName(Difference difference);  // "nothing", ...

// Names a row of the tolerance contract; the dtype is that of the left tensor.
struct ToleranceRow {
  OpClass op_class = OpClass::kElementwise;
  bool gradient = false;
};

struct ComparisonOptions {
  Judgment judgment = Judgment::kParity;
  // Needed for accuracy, never there for invariance; with parity it is the declared contract.
  std::optional<ToleranceRow> tolerance = std::nullopt;
  // Empty, or one name for each dimension.
  std::vector<std::string> axes = {};
  double relative_floor = 1e-12;
  int rows_max = 8;
  bool digests = true;
};

struct ComparedSide {
  std::string_view role;
  DType dtype = DType::kUnspecified;
  Dims shape;
  // Absent where digests were not asked for.
  std::optional<Digest> digest;
  // After every NaN is made the canonical one.
  std::optional<Digest> canonical_nan_digest;
};

struct Mismatch {
  int64_t flat_index = 0;
  std::vector<int64_t> indices;  // one for each dimension
  // Hex digits of the bits, the highest first.
  std::string left_bits, right_bits;
  double left = 0, right = 0;
};

struct PassRule {
  bool bitwise = true;
  std::string row;  // "forward_accuracy/reduction/bfloat16"
  std::string tolerance_version, tolerance_sha256;
  double atol = 0, rtol = 0;
  int64_t outside = 0;
  // The largest |error| - (atol + rtol |right|) of a value that differs; 0 where none does.
  double worst_excess = 0;
  int64_t worst_index = -1;
};

// Over the elements that are finite on both sides; error is left minus right.
struct ErrorMagnitude {
  int64_t elements = 0;
  double max_abs = 0, max_rel = 0, relative_floor = 0;
  double max_abs_left = 0, max_abs_right = 0, max_abs_over_max_right = 0;
  double mean_abs = 0, root_mean_square = 0, signed_mean = 0, magnitude_mean = 0;
  double cosine = 1, pearson = 1, root_mean_square_right = 0;
};

struct Comparison {
  Judgment judgment = Judgment::kParity;
  bool passed = false;
  Difference difference = Difference::kNothing;
  ComparedSide left, right;
  std::vector<std::string> axes;
  // Whether elements were looked at: not of other shapes or dtypes, nor of a digest.
  bool looked_at = false;
  // Counts, histogram and extremes as they were found; ulp bucket 0 is complete.
  compare::Stats stats;
  ErrorMagnitude magnitude;
  std::optional<Mismatch> first_mismatch;
  int64_t rows = 0;
  bool rows_counted = true;
  compare::RowStats row_stats;
  PassRule rule;
  Triage triage;
  DeviceKind compared_on = DeviceKind::kHost;

  int64_t mismatched() const { return stats.counts[compare::kMismatched]; }
};

// What comparisons need of the server. Thread-safe; `pool` may be null.
struct ComparisonContext {
  const ToleranceContract* tolerance = nullptr;
  ThreadPool* pool = nullptr;
};

// A reference of another dtype is rounded on the host, which takes 16 bytes an element.
inline constexpr int64_t kRoundedElementsMax = int64_t{1} << 25;

// INVALID_ARGUMENT (kUnknownOption, kLimitExceeded, kDtypeNotAllowed) for options that say nothing
// of these tensors. Any two tensors have a verdict: other shapes and dtypes, empty tensors and
// scalars are none of the errors.
absl::StatusOr<Comparison> CompareTensors(const ParityTensor& left, const ParityTensor& right,
                                          const ComparisonOptions& options,
                                          const ComparisonContext& context,
                                          const Interrupt& interrupt);

// Against a digest: only whether it is equal is known, and no tolerance can be.
absl::StatusOr<Comparison> CompareWithDigest(const ParityTensor& left, std::string_view digest,
                                             const ComparisonOptions& options,
                                             const Interrupt& interrupt);

}  // namespace rlk::server
