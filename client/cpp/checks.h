// Checks of a server's kernels: one call on two sides, or in other layouts.
//
//   ParityCheck check{.call = request};
//   check.left.backend = "cuda";
//   check.right.backend = "cpu";
//   check.gradients.emplace();
//   absl::StatusOr<rlk::v1::CheckParityResponse> result = CheckParity(*client, check);
//   if (!result->passed()) puts(result->first_difference().c_str());
//
// proto/rlk/v1/parity_check.proto says what the answers hold, server/parity/checks.md what is done.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "rlk/v1/parity_check.pb.h"

namespace rlk::client {

using NamedTensors = std::vector<std::pair<std::string, TensorRef>>;

struct CheckSide {
  std::string backend = {};
  std::vector<std::string> contracts = {};
  std::string device_uuid = {};
  rlk::v1::Mode mode = rlk::v1::MODE_UNSPECIFIED;
  // Another server, which the --parity-peer of the one that is asked must list.
  std::string server = {};
  // By the names of outputs, in place of all that stands above, which is refused beside it.
  NamedTensors provided = {};
};

struct CheckGradients {
  rlk::v1::GradientMode mode = rlk::v1::GRADIENT_MODE_RANDOM;
  uint64_t seed = 123;
  // By name ("grad_y"), in place of generated ones.
  NamedTensors given = {};
};

struct ParityCheck {
  CallRequest call;
  CheckSide left = {}, right = {};
  rlk::v1::Judgment judgment = rlk::v1::JUDGMENT_PARITY;
  // Absent: the forward alone.
  std::optional<CheckGradients> gradients = std::nullopt;
};

struct InvarianceCheck {
  CallRequest call;
  // Empty: all.
  std::vector<rlk::v1::InvarianceAxis> axes = {};
  uint64_t seed = 123;
  // 0 takes the server's default.
  int64_t repeats = 0;
  int64_t concurrency = 0;
  // Besides the one in call.options.
  std::vector<std::string> contracts = {};
  std::optional<CheckGradients> gradients = std::nullopt;
};

// Tensors of 64 KiB and more are uploaded for the check. That something differs is no error: the
// response says it.
absl::StatusOr<rlk::v1::CheckParityResponse> CheckParity(const Client& client,
                                                         const ParityCheck& check);
absl::StatusOr<rlk::v1::CheckInvarianceResponse> CheckInvariance(const Client& client,
                                                                 const InvarianceCheck& check);

}  // namespace rlk::client
