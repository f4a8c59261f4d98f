// The tolerance contract: one JSON file with a version; its SHA-256 is provenance.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "kernels/core/dtype.h"
#include "kernels/registry/signature.h"

namespace rlk::server {

struct Tolerance {
  double atol = 0;
  double rtol = 0;
};

class ToleranceContract {
 public:
  // The contract that is compiled in (server/engine/tolerance_contract.json).
  static const ToleranceContract& Builtin();
  // INVALID_ARGUMENT naming the missing or wrong cell.
  static absl::StatusOr<ToleranceContract> Parse(std::string_view json);

  // The row for an accuracy judgment; `gradient` picks gradient_accuracy. NOT_FOUND where the
  // contract has no cell for the dtype.
  absl::StatusOr<Tolerance> Accuracy(OpClass op_class, DType compared, bool gradient) const;

  const std::string& version() const { return version_; }
  // Lower-case hex of the canonical form (keys sorted, compact separators, ASCII).
  const std::string& sha256() const { return sha256_; }

 private:
  std::string version_, sha256_;
  // [gradient][op class][dtype]; rtol < 0 marks an absent cell.
  Tolerance cells_[2][5][kDTypeCount];
};

}  // namespace rlk::server
