#include "server/parity/policy_distributions.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/compare/compare.h"
#include "kernels/core/status.h"

namespace rlk::server {
namespace {

// The log of the sum of exp, and the two largest.
struct Row {
  double log_sum = 0, first = 0, second = 0;
  int64_t choice = 0;
  // Whether the logits are those of a distribution; -infinity leaves a token out of it.
  bool valid = false;
};
Row LookAt(const std::vector<double>& logits) {
  Row row;
  row.first = row.second = -INFINITY;
  if (std::any_of(logits.begin(), logits.end(), [](double x) { return std::isnan(x); })) return row;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > row.first) {
      row.second = std::exchange(row.first, logits[i]);
      row.choice = static_cast<int64_t>(i);
    } else if (logits[i] > row.second) {
      row.second = logits[i];
    }
  }
  row.valid = std::isfinite(row.first);
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - row.first);
  row.log_sum = row.first + std::log(sum);
  return row;
}

// p log(p / q) + q - p: never negative, and of all tokens the sum is that of p log(p / q).
double Divergence(double log_p, double log_q) {
  const double p = std::exp(log_p), t = log_q - log_p;
  if (p == 0) return std::exp(log_q);
  if (std::fabs(t) < 1) return p * ExpBeyondLine(t);
  return std::exp(log_q) - p - p * t;
}

}  // namespace

absl::StatusOr<Distributions> Distributions::Make(const PolicyTensors& tensors) {
  Distributions result;
  result.dtypes_[0] = tensors.rollout_logits->dtype;
  result.dtypes_[1] = tensors.trainer_logits->dtype;
  result.columns_ = tensors.rollout_logits->columns();
  RLK_ASSIGN_OR_RETURN(result.host_[0], ToHost(*tensors.rollout_logits));
  RLK_ASSIGN_OR_RETURN(result.host_[1], ToHost(*tensors.trainer_logits));
  return result;
}

void Distributions::Token(int64_t index) {
  const std::vector<double> rollout = Logits(0, index), trainer = Logits(1, index);
  const Row a = LookAt(rollout), b = LookAt(trainer);
  if (!a.valid || !b.valid) {
    ++not_finite_;
    return;
  }
  double kl = 0;
  for (size_t i = 0; i < rollout.size(); ++i) {
    kl += Divergence(rollout[i] - a.log_sum, trainer[i] - b.log_sum);
  }
  kl_.Add(kl);
  ++tokens_;
  if (a.choice == b.choice) return;
  ++flips_;
  margin_.Add(a.first - a.second);
}

PolicyComparison::Distribution Distributions::Result() const {
  return {kl_.summary(), margin_.summary(), flips_, tokens_, not_finite_};
}

std::vector<double> Distributions::Logits(int side, int64_t index) const {
  std::vector<double> values(static_cast<size_t>(columns_));
  const int64_t bytes = columns_ * DTypeSize(dtypes_[side]);
  compare::Widen(dtypes_[side], host_[side].data + index * bytes, columns_, values.data());
  return values;
}

}  // namespace rlk::server
