#include "server/parity/policy.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/compare/compare.h"
#include "kernels/core/fp_environment.h"
#include "kernels/core/status.h"
#include "server/engine/contract_check.h"

namespace rlk::server {
namespace {

constexpr double kRatioLow = 0.8, kRatioHigh = 1.2;
// Between two looks at the clock.
constexpr int64_t kSliceTokens = int64_t{1} << 16;

// Adds values in order.
class Accumulator {
 public:
  void Add(double value) {
    if (count_ == 0 || value < min_) min_ = value;
    if (count_ == 0 || value > max_) max_ = value;
    ++count_;
    sum_ += value;
    squares_ += value * value;
  }
  double sum() const { return sum_; }
  double squares() const { return squares_; }
  double mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }
  double mean_square() const { return count_ == 0 ? 0 : squares_ / static_cast<double>(count_); }
  Summary summary() const {
    if (count_ == 0) return {};
    const double variance = mean_square() - mean() * mean();
    return {min_, mean(), max_, variance > 0 ? std::sqrt(variance) : 0};
  }

 private:
  int64_t count_ = 0;
  double min_ = 0, max_ = 0, sum_ = 0, squares_ = 0;
};

absl::StatusOr<std::vector<double>> Values(const ParityTensor& tensor) {
  RLK_ASSIGN_OR_RETURN(const ParityTensor host, ToHost(tensor));
  std::vector<double> values(static_cast<size_t>(host.elements()));
  compare::Widen(host.dtype, host.data, host.elements(), values.data());
  return values;
}

absl::StatusOr<std::vector<int64_t>> Integers(const ParityTensor& tensor) {
  RLK_ASSIGN_OR_RETURN(const ParityTensor host, ToHost(tensor));
  const auto count = static_cast<size_t>(host.elements());
  std::vector<int64_t> values(count);
  for (size_t i = 0; i < count; ++i) {
    switch (host.dtype) {
      case DType::kI32: {
        int32_t value = 0;
        std::memcpy(&value, host.data + 4 * i, sizeof(value));
        values[i] = value;
        break;
      }
      case DType::kI64:
        std::memcpy(&values[i], host.data + 8 * i, sizeof(int64_t));
        break;
      default:
        values[i] = static_cast<int64_t>(host.data[i]);
    }
  }
  return values;
}

absl::Status WrongDtype(std::string_view field, DType dtype, std::string_view allowed) {
  return InvalidArgument(Reason::kDtypeNotAllowed, field, DTypeName(dtype), allowed,
                         "the tensor has no such elements");
}

absl::Status WrongShape(std::string_view field, const Dims& shape, std::string_view allowed) {
  return InvalidArgument(Reason::kShapeMismatch, field, ShapeText(shape), allowed,
                         "the tensors do not belong together");
}

absl::Status CheckLogits(std::string_view field, const ParityTensor& logits, const Dims& tokens) {
  if (!IsFloat(logits.dtype)) return WrongDtype(field, logits.dtype, "F32, F16, BF16, F64");
  bool same = logits.shape.rank() == tokens.rank() + 1;
  for (int d = 0; same && d < tokens.rank(); ++d) same = logits.shape[d] == tokens[d];
  if (same && logits.columns() > 0) return absl::OkStatus();
  return WrongShape(field, logits.shape, ShapeText(tokens) + " and the vocabulary");
}

absl::Status CheckTensors(const PolicyTensors& tensors) {
  constexpr std::string_view kFloats = "F32, F16, BF16, F64";
  const Dims& shape = tensors.rollout.shape;
  if (tensors.rollout.elements() > kPolicyTokensMax) {
    return InvalidArgument(Reason::kLimitExceeded, "rollout",
                           std::to_string(tensors.rollout.elements()) + " tokens",
                           "at most " + std::to_string(kPolicyTokensMax),
                           "there are too many tokens for one comparison");
  }
  if (!IsFloat(tensors.rollout.dtype)) return WrongDtype("rollout", tensors.rollout.dtype, kFloats);
  if (!IsFloat(tensors.trainer.dtype)) return WrongDtype("trainer", tensors.trainer.dtype, kFloats);
  if (!(tensors.trainer.shape == shape)) {
    return WrongShape("trainer", tensors.trainer.shape, ShapeText(shape) + ", as rollout");
  }
  if (tensors.mask) {
    const ParityTensor& mask = *tensors.mask;
    if (IsFloat(mask.dtype)) return WrongDtype("mask", mask.dtype, "U8, BOOL, I32, I64");
    if (!(mask.shape == shape)) {
      return WrongShape("mask", mask.shape, ShapeText(shape) + ", as rollout");
    }
  }
  if (tensors.cu_seqlens) {
    const ParityTensor& bounds = *tensors.cu_seqlens;
    if (bounds.dtype != DType::kI32 && bounds.dtype != DType::kI64) {
      return WrongDtype("cu_seqlens", bounds.dtype, "I32, I64");
    }
    if (bounds.shape.rank() != 1 || bounds.shape[0] < 1) {
      return WrongShape("cu_seqlens", bounds.shape, "[sequences + 1]");
    }
  }
  if (tensors.rollout_logits.has_value() != tensors.trainer_logits.has_value()) {
    return InvalidArgument(Reason::kMissingTensor,
                           tensors.rollout_logits ? "trainer_logits" : "rollout_logits", {},
                           "logits of both sides, or of none", "the tensor is missing");
  }
  if (!tensors.rollout_logits) return absl::OkStatus();
  RLK_RETURN_IF_ERROR(CheckLogits("rollout_logits", *tensors.rollout_logits, shape));
  RLK_RETURN_IF_ERROR(CheckLogits("trainer_logits", *tensors.trainer_logits, shape));
  if (tensors.rollout_logits->columns() == tensors.trainer_logits->columns()) {
    return absl::OkStatus();
  }
  return WrongShape("trainer_logits", tensors.trainer_logits->shape,
                    ShapeText(tensors.rollout_logits->shape) + ", as rollout_logits");
}

// Where sequences begin, and the end of the last.
absl::StatusOr<std::vector<int64_t>> Bounds(const PolicyTensors& tensors) {
  const int64_t tokens = tensors.rollout.elements();
  if (!tensors.cu_seqlens) {
    const int64_t columns = tensors.rollout.columns();
    std::vector<int64_t> bounds = {0};
    for (int64_t row = 0; columns > 0 && row < tensors.rollout.rows(); ++row) {
      bounds.push_back((row + 1) * columns);
    }
    return bounds;
  }
  RLK_ASSIGN_OR_RETURN(const std::vector<int64_t> bounds, Integers(*tensors.cu_seqlens));
  bool rising = bounds.front() == 0 && bounds.back() == tokens;
  for (size_t i = 1; i < bounds.size(); ++i) rising = rising && bounds[i - 1] <= bounds[i];
  if (rising) return bounds;
  return InvalidArgument(Reason::kIndexOutOfRange, "cu_seqlens",
                         std::to_string(bounds.front()) + " to " + std::to_string(bounds.back()),
                         "from 0 to " + std::to_string(tokens) + ", not falling",
                         "the sequences do not cover the tokens");
}

// Everything that is told token by token and sequence by sequence.
class TokenPass {
 public:
  TokenPass(const PolicyOptions& options, PolicyComparison& result)
      : options_(options), result_(result) {
    result_.cap = options.ratio_cap;
  }

  void Token(const PolicyToken& token) {
    const double d = token.difference;
    distance_.push_back(std::fabs(d));
    difference_.Add(d);
    k2_ += d * d / 2;
    k3_ += token.ratio - 1 - d;
    ratio_.Add(token.ratio);
    probability_.Add(std::fabs(std::exp(token.trainer) - std::exp(token.rollout)));
    if (token.rollout != token.trainer) ++result_.mismatched;
    below_ += token.ratio < kRatioLow;
    above_ += token.ratio > kRatioHigh;
    above_cap_ += token.ratio > options_.ratio_cap;
    sequence_rollout_ += token.rollout;
    sequence_trainer_ += token.trainer;
    sequence_difference_ += d;
    ++sequence_tokens_;
    KeepWorst(token);
  }

  void EndSequence() {
    ++result_.sequences;
    if (sequence_tokens_ == 0) {
      ++result_.empty_sequences;
      return;
    }
    const auto n = static_cast<double>(sequence_tokens_);
    const double log_rollout = -sequence_rollout_ / n, log_trainer = -sequence_trainer_ / n;
    rollout_.Add(std::exp(log_rollout));
    trainer_.Add(std::exp(log_trainer));
    log_perplexity_.Add(log_trainer - log_rollout);
    log_perplexity_abs_.Add(std::fabs(log_trainer - log_rollout));
    perplexity_ratio_.Add(std::exp(log_trainer - log_rollout));
    ratio_sum_.Add(std::exp(sequence_difference_));
    ratio_mean_.Add(std::exp(sequence_difference_ / n));
    log_sum_.Add(sequence_difference_);
    chi2_.Add(std::exp(2 * sequence_difference_));
    sequence_rollout_ = sequence_trainer_ = sequence_difference_ = 0;
    sequence_tokens_ = 0;
  }

  void Finish() {
    PolicyComparison& r = result_;
    if (distance_.empty()) return;
    const auto n = static_cast<double>(distance_.size());
    double sum = 0;
    for (const double distance : distance_) sum += distance;
    r.mean_abs = sum / n;
    r.p50_abs = Rank(0.50);
    r.p99_abs = Rank(0.99);
    r.max_abs = *std::max_element(distance_.begin(), distance_.end());
    r.mean = difference_.mean();
    r.probability_abs = probability_.summary();
    r.k1 = -r.mean;
    r.k2 = k2_ / n;
    r.k3 = k3_ / n;
    r.chi2_token = ratio_.mean_square() - 1;
    r.chi2_sequence = chi2_.mean() - 1;
    r.rollout_perplexity = rollout_.mean();
    r.trainer_perplexity = trainer_.mean();
    r.log_perplexity_difference = log_perplexity_.summary();
    r.log_perplexity_abs_difference = log_perplexity_abs_.mean();
    r.perplexity_ratio = perplexity_ratio_.mean();
    r.ratio_token = ratio_.summary();
    r.ratio_sequence_sum = ratio_sum_.summary();
    r.ratio_sequence_mean = ratio_mean_.summary();
    r.log_sequence_sum = log_sum_.summary();
    if (ratio_.squares() > 0) {
      r.effective_sample_size = ratio_.sum() * ratio_.sum() / (n * ratio_.squares());
    }
    r.below = static_cast<double>(below_) / n;
    r.above = static_cast<double>(above_) / n;
    r.outside = static_cast<double>(below_ + above_) / n;
    r.above_cap = static_cast<double>(above_cap_) / n;
  }

 private:
  double Rank(double share) {
    const auto rank =
        static_cast<size_t>(std::ceil(share * static_cast<double>(distance_.size()))) - 1;
    const auto place = distance_.begin() + static_cast<int64_t>(rank);
    std::nth_element(distance_.begin(), place, distance_.end());
    return *place;
  }

  void KeepWorst(const PolicyToken& token) {
    auto& worst = result_.worst;
    const auto place = std::upper_bound(worst.begin(), worst.end(), token,
                                        [](const PolicyToken& a, const PolicyToken& b) {
                                          return std::fabs(a.difference) > std::fabs(b.difference);
                                        });
    if (token.difference == 0 || place - worst.begin() >= options_.tokens_max) return;
    worst.insert(place, token);
    if (static_cast<int>(worst.size()) > options_.tokens_max) worst.pop_back();
  }

  const PolicyOptions& options_;
  PolicyComparison& result_;
  std::vector<double> distance_;
  Accumulator difference_, ratio_, probability_;
  double k2_ = 0, k3_ = 0;
  int64_t below_ = 0, above_ = 0, above_cap_ = 0;
  Accumulator rollout_, trainer_, perplexity_ratio_, log_perplexity_, log_perplexity_abs_;
  Accumulator ratio_sum_, ratio_mean_, log_sum_, chi2_;
  double sequence_rollout_ = 0, sequence_trainer_ = 0, sequence_difference_ = 0;
  int64_t sequence_tokens_ = 0;
};

struct Thresholds {
  double max_abs, kl;
};
Thresholds ThresholdsOf(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return {6e-2, 5e-2};
    case DType::kF16:
      return {5e-3, 5e-3};
    default:
      return {1e-5, 1e-5};
  }
}

// BF16 is judged more loosely than F16, F16 than F32.
DType Narrower(DType a, DType b) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    if (a == dtype || b == dtype) return dtype;
  }
  return DType::kF32;
}

void JudgeChain(PolicyComparison& r) {
  const Thresholds thresholds = ThresholdsOf(r.execution_dtype);
  r.chain = {{"max_abs_dlogp", r.max_abs, thresholds.max_abs, r.max_abs <= thresholds.max_abs},
             {"approx_kl0", r.k3, thresholds.kl, r.k3 <= thresholds.kl},
             {"clipfrac0", r.outside, 0, r.outside == 0}};
  if (r.tokens == 0) r.failure = "no token is active";
  if (r.not_finite > 0) {
    r.failure = std::to_string(r.not_finite) + " active tokens are NaN or infinite";
  }
  r.passed = r.failure.empty();
  for (const ChainValue& value : r.chain) r.passed = r.passed && value.passed;
}

// Where supports differ or are cut, the figures do not mean what they seem to.
std::string SupportNote(const PolicySupport& rollout, const PolicySupport& trainer) {
  std::string note;
  const bool cut_rollout = rollout.truncated() && rollout.after_processors;
  const bool cut_trainer = trainer.truncated() && trainer.after_processors;
  if (cut_rollout != cut_trainer) {
    note = std::string(cut_rollout ? "rollout" : "trainer") +
           " log-probabilities are of a truncated distribution and the other side's of the whole: "
           "the mean ratio is the mass that was kept, not a drift of the policy";
  }
  const auto temperature = [](const PolicySupport& support) {
    return support.after_processors && support.temperature > 0 ? support.temperature : 1.0;
  };
  if (temperature(rollout) != temperature(trainer)) {
    note += std::string(note.empty() ? "" : "; ") + "the two sides are at different temperatures";
  }
  if (rollout.softcap_applications && trainer.softcap_applications &&
      *rollout.softcap_applications != *trainer.softcap_applications) {
    note += std::string(note.empty() ? "" : "; ") + "the softcap is applied " +
            std::to_string(*rollout.softcap_applications) + " times by the rollout and " +
            std::to_string(*trainer.softcap_applications) + " times by the trainer";
  }
  return note;
}

// verl, slime and TRL name these figures so (server/parity/README.md).
void NameMetrics(PolicyComparison& r) {
  r.metrics = {
      {"rollout_corr/kl", r.k1},
      {"rollout_corr/k3_kl", r.k3},
      {"rollout_corr/training_ppl", r.trainer_perplexity},
      {"rollout_corr/rollout_ppl", r.rollout_perplexity},
      {"rollout_corr/ppl_ratio", r.perplexity_ratio},
      {"rollout_corr/log_ppl_diff", r.log_perplexity_difference.mean},
      {"rollout_corr/log_ppl_abs_diff", r.log_perplexity_abs_difference},
      {"rollout_corr/log_ppl_diff_max", r.log_perplexity_difference.max},
      {"rollout_corr/log_ppl_diff_min", r.log_perplexity_difference.min},
      {"rollout_corr/chi2_token", r.chi2_token},
      {"rollout_corr/chi2_seq", r.chi2_sequence},
      {"rollout_corr/rollout_is_mean", r.ratio_token.mean},
      {"rollout_corr/rollout_is_min", r.ratio_token.min},
      {"rollout_corr/rollout_is_max", r.ratio_token.max},
      {"rollout_corr/rollout_is_std", r.ratio_token.standard_deviation},
      {"rollout_corr/rollout_is_eff_sample_size", r.effective_sample_size},
      {"training/rollout_probs_diff_max", r.probability_abs.max},
      {"training/rollout_probs_diff_mean", r.probability_abs.mean},
      {"training/rollout_probs_diff_std", r.probability_abs.standard_deviation},
      {"train/train_rollout_logprob_abs_diff", r.mean_abs},
      {"train/train_rollout_kl", r.k3},
      {"train/ois", r.ratio_token.mean},
      {"train/tis_clipfrac", r.above_cap},
      {"sampling/sampling_logp_difference/mean", r.mean_abs},
      {"sampling/sampling_logp_difference/max", r.max_abs},
      {"sampling/importance_sampling_ratio/min", r.ratio_token.min},
      {"sampling/importance_sampling_ratio/mean", r.ratio_token.mean},
      {"sampling/importance_sampling_ratio/max", r.ratio_token.max},
  };
}

// The log of the sum of exp, and the two largest.
struct Row {
  double log_sum = 0, first = 0, second = 0;
  int64_t choice = 0;
};
Row LookAt(const std::vector<double>& logits) {
  Row row;
  row.first = row.second = -INFINITY;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > row.first) {
      row.second = std::exchange(row.first, logits[i]);
      row.choice = static_cast<int64_t>(i);
    } else if (logits[i] > row.second) {
      row.second = logits[i];
    }
  }
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - row.first);
  row.log_sum = row.first + std::log(sum);
  return row;
}

class Distributions {
 public:
  static absl::StatusOr<Distributions> Make(const PolicyTensors& tensors) {
    Distributions result;
    result.dtypes_[0] = tensors.rollout_logits->dtype;
    result.dtypes_[1] = tensors.trainer_logits->dtype;
    result.columns_ = tensors.rollout_logits->columns();
    RLK_ASSIGN_OR_RETURN(result.host_[0], ToHost(*tensors.rollout_logits));
    RLK_ASSIGN_OR_RETURN(result.host_[1], ToHost(*tensors.trainer_logits));
    return result;
  }

  void Token(int64_t index) {
    const std::vector<double> rollout = Logits(0, index), trainer = Logits(1, index);
    const Row a = LookAt(rollout), b = LookAt(trainer);
    double kl = 0;
    for (size_t i = 0; i < rollout.size(); ++i) {
      const double log_p = rollout[i] - a.log_sum, log_q = trainer[i] - b.log_sum;
      if (log_p > -INFINITY) kl += std::exp(log_p) * (log_p - log_q);
    }
    kl_.Add(kl);
    ++tokens_;
    if (a.choice == b.choice) return;
    ++flips_;
    margin_.Add(a.first - a.second);
  }

  PolicyComparison::Distribution Result() const {
    return {kl_.summary(), margin_.summary(), flips_, tokens_};
  }

 private:
  std::vector<double> Logits(int side, int64_t index) const {
    std::vector<double> values(static_cast<size_t>(columns_));
    const int64_t bytes = columns_ * DTypeSize(dtypes_[side]);
    compare::Widen(dtypes_[side], host_[side].data + index * bytes, columns_, values.data());
    return values;
  }

  DType dtypes_[2] = {};
  ParityTensor host_[2];
  int64_t columns_ = 0;
  Accumulator kl_, margin_;
  int64_t flips_ = 0, tokens_ = 0;
};

}  // namespace

absl::StatusOr<PolicyComparison> ComparePolicies(const PolicyTensors& tensors,
                                                 const PolicyOptions& options,
                                                 const Interrupt& interrupt) {
  const FpEnvironment environment;
  RLK_RETURN_IF_ERROR(CheckTensors(tensors));
  RLK_ASSIGN_OR_RETURN(const std::vector<int64_t> bounds, Bounds(tensors));
  RLK_ASSIGN_OR_RETURN(const std::vector<double> rollout, Values(tensors.rollout));
  RLK_ASSIGN_OR_RETURN(const std::vector<double> trainer, Values(tensors.trainer));
  std::vector<int64_t> mask;
  if (tensors.mask) {
    RLK_ASSIGN_OR_RETURN(mask, Integers(*tensors.mask));
  }
  std::optional<Distributions> distributions;
  if (tensors.rollout_logits) {
    RLK_ASSIGN_OR_RETURN(distributions, Distributions::Make(tensors));
  }
  PolicyComparison result;
  TokenPass pass(options, result);
  for (size_t s = 0; s + 1 < bounds.size(); ++s) {
    for (int64_t i = bounds[s]; i < bounds[s + 1]; ++i) {
      if (i % kSliceTokens == 0 || distributions) RLK_RETURN_IF_ERROR(interrupt.Check());
      const auto at = static_cast<size_t>(i);
      if (!mask.empty() && mask[at] == 0) {
        ++result.masked;
        continue;
      }
      ++result.tokens;
      if (!std::isfinite(rollout[at]) || !std::isfinite(trainer[at])) {
        ++result.not_finite;
        continue;
      }
      const double d = trainer[at] - rollout[at];
      pass.Token(
          {i, static_cast<int64_t>(s), i - bounds[s], rollout[at], trainer[at], d, std::exp(d)});
      if (distributions) distributions->Token(i);
    }
    pass.EndSequence();
  }
  pass.Finish();
  if (distributions) result.distribution = distributions->Result();
  result.execution_dtype = options.execution_dtype != DType::kUnspecified
                               ? options.execution_dtype
                               : Narrower(tensors.rollout.dtype, tensors.trainer.dtype);
  result.rollout_support = options.rollout;
  result.trainer_support = options.trainer;
  result.support_note = SupportNote(options.rollout, options.trainer);
  JudgeChain(result);
  NameMetrics(result);
  return result;
}

}  // namespace rlk::server
