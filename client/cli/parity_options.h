// Options that the checks of `rlk` share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/args.h"
#include "client/cpp/checks.h"

namespace rlk::cli {

// The verbs of `rlk parity`.
const VerbOptions& ParityVerbs();

// --check-grad, --grad-mode ones|random, --grad-seed N; absent without any of them.
absl::StatusOr<std::optional<client::CheckGradients>> GradientsOf(const Args& args);

// --judgment parity|accuracy|invariance.
absl::StatusOr<rlk::v1::Judgment> JudgmentOf(const Args& args);

// --axes repeat,slice,...; empty where it is not given.
absl::StatusOr<std::vector<rlk::v1::InvarianceAxis>> AxesOf(const Args& args);

}  // namespace rlk::cli
