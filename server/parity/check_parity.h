// CheckParity: one call on two sides, outputs and gradients compared. A side is this server with a
// backend and contracts, another server, or tensors that somebody else computed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/engine/tolerance.h"
#include "server/parity/call_runner.h"
#include "server/parity/comparison.h"
#include "server/parity/gradients.h"

namespace rlk::server {

struct ParitySide {
  // Not owned; null where the side's tensors are given.
  CallRunner* runner = nullptr;
  // By output name: "y", "grad_x".
  std::map<std::string, HostTensor> provided = {};
  // FP64, rounded once: what ACCURACY compares with.
  bool golden = false;
  // Of this process: its memory can be filled before a launch.
  bool local = true;
};

struct ParityQuery {
  ValueCall call;
  ParitySide left, right;
  Judgment judgment = Judgment::kParity;
  bool gradients = false;
  GradientOptions gradient;
};

struct OutputVerdict {
  const Method* method = nullptr;
  std::string output;
  Comparison comparison;
  // Elements that no kernel wrote: they follow what memory was filled with. Of sides of this
  // process.
  int64_t unwritten_left = 0, unwritten_right = 0;
  // NaN that no input has: all inputs of the side are finite.
  int64_t nan_created_left = 0, nan_created_right = 0;

  bool passed() const { return comparison.passed && unwritten_left == 0 && unwritten_right == 0; }
};

// An output that one side does not have.
struct NotCompared {
  const Method* method = nullptr;
  std::string output;
  std::string reason;
};

struct ParityResult {
  bool passed = true;
  // Forward outputs, then those of each backward method.
  std::vector<OutputVerdict> outputs;
  std::vector<NotCompared> not_compared;
  // Empty for a provided side.
  std::vector<RunOf> left, right;
  int64_t elements = 0;

  // The first output that failed; null where all passed.
  const OutputVerdict* first_difference() const;
};

// Errors of a side name it: their field begins with "left." or "right.". INVALID_ARGUMENT also
// where both sides are provided, an output has no name of the methods, nothing can be compared, or
// ACCURACY has no golden side.
absl::StatusOr<ParityResult> CheckParity(const Registry& registry,
                                         const ToleranceContract& tolerance,
                                         const ParityQuery& query, CheckContext& context);

// The status with the side in front of its field.
absl::Status OfSide(const char* side, const absl::Status& status);

}  // namespace rlk::server
