// Whole distributions of rollout and trainer, where their logits are given.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "server/parity/policy.h"
#include "server/parity/policy_sums.h"

namespace rlk::server {

class Distributions {
 public:
  // The logits of both sides are there, of one shape, with a vocabulary.
  static absl::StatusOr<Distributions> Make(const PolicyTensors& tensors);

  // Takes the distributions of the token.
  void Token(int64_t index);

  PolicyComparison::Distribution Result() const;

 private:
  std::vector<double> Logits(int side, int64_t index) const;

  DType dtypes_[2] = {};
  ParityTensor host_[2];
  int64_t columns_ = 0;
  Accumulator kl_, margin_;
  int64_t flips_ = 0, tokens_ = 0, not_finite_ = 0;
};

}  // namespace rlk::server
