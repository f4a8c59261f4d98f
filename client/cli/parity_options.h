// Options that the checks of `rlk` share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/args.h"
#include "client/cpp/checks.h"

namespace rlk::cli {

// What the verbs of `rlk parity` take together, for command.cc.
std::vector<OptionSpec> ParityOptionSpecs();
// INVALID_ARGUMENT for an option of another verb: it would be passed over.
absl::Status CheckVerbOptions(const Args& args, const std::string& verb);

// --check-grad, --grad-mode ones|random, --grad-seed N; absent without any of them.
absl::StatusOr<std::optional<client::CheckGradients>> GradientsOf(const Args& args);

// --judgment parity|accuracy|invariance.
absl::StatusOr<rlk::v1::Judgment> JudgmentOf(const Args& args);

// --axes repeat,slice,...; empty where it is not given.
absl::StatusOr<std::vector<rlk::v1::InvarianceAxis>> AxesOf(const Args& args);

}  // namespace rlk::cli
