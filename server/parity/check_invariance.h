// CheckInvariance: does a row's result depend on anything but the row? One call, its gradients if
// asked, and the same rows in other layouts, on one backend; compared as bits, never by a
// tolerance. server/parity/checks.md describes the axes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/parity/call_runner.h"
#include "server/parity/comparison.h"
#include "server/parity/gradients.h"
#include "server/parity/invariance_axis.h"

namespace rlk::server {

inline constexpr int64_t kRepeatsMax = int64_t{1} << 20;
inline constexpr int64_t kConcurrencyMax = 16;
// Rows of a call that is laid out anew: a layout is a list of them, and an axis has up to 14.
inline constexpr int64_t kLaidOutRowsMax = int64_t{1} << 22;

struct InvarianceOptions {
  // Empty: all.
  std::vector<InvarianceAxis> axes = {};
  uint64_t seed = 123;
  // Runs of kRepeat; 0 takes 1024, or as many as are a sixteenth of the work that a check may do.
  int64_t repeats = 0;
  // Callers at a time of kConcurrency; 0 takes 4.
  int64_t concurrency = 0;
  bool gradients = false;
  GradientOptions gradient = {};
};

// The first layout of an axis whose result differs.
struct LayoutDifference {
  std::string layout;
  std::string output;
  // The row of the call; -1 for an output that has none.
  int64_t row = -1;
  // Left is what the layout gave, right what the call gave, its rows in the order of the layout.
  Comparison comparison;
};

struct AxisResult {
  const Method* method = nullptr;
  InvarianceAxis axis = InvarianceAxis::kRepeat;
  // False: `note` says why the axis has no meaning for the method or the call.
  bool applicable = true;
  // What the axis does not compare, and why.
  std::string note;
  int64_t layouts = 0;
  int64_t elements = 0;
  std::optional<LayoutDifference> difference;

  bool passed() const { return !difference.has_value(); }
};

struct InvarianceResult {
  // No layout differs, and there was one: of nothing that was compared nothing is proved.
  bool passed = true;
  // By method, then axis.
  std::vector<AxisResult> axes;
  // The call itself and its gradients: outputs and reports.
  std::vector<RunOf> runs;
};

// Errors are those of the calls.
absl::StatusOr<InvarianceResult> CheckInvariance(const Registry& registry, CallRunner& runner,
                                                 const ValueCall& call,
                                                 const InvarianceOptions& options,
                                                 CheckContext& context);

}  // namespace rlk::server
