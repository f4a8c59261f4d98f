#include "server/parity/policy.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/compare/compare.h"
#include "kernels/core/fp_environment.h"
#include "kernels/core/status.h"
#include "server/engine/contract_check.h"
#include "server/parity/policy_distributions.h"
#include "server/parity/policy_sums.h"

namespace rlk::server {
namespace {

constexpr double kRatioLow = 0.8, kRatioHigh = 1.2;
// Between two looks at the clock.
constexpr int64_t kSliceTokens = int64_t{1} << 16;

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

absl::Status CheckCount(std::string_view field, int64_t count, const std::string& of) {
  if (count <= kPolicyTokensMax) return absl::OkStatus();
  return InvalidArgument(Reason::kLimitExceeded, field, std::to_string(count) + " " + of,
                         "at most " + std::to_string(kPolicyTokensMax),
                         "there are too many " + of + " for one comparison");
}

absl::Status CheckTensors(const PolicyTensors& tensors) {
  constexpr std::string_view kFloats = "F32, F16, BF16, F64";
  const Dims& shape = tensors.rollout.shape;
  RLK_RETURN_IF_ERROR(CheckCount("rollout", tensors.rollout.elements(), "tokens"));
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
    RLK_RETURN_IF_ERROR(CheckCount("cu_seqlens", bounds.shape[0] - 1, "sequences"));
  } else {
    RLK_RETURN_IF_ERROR(CheckCount("rollout", tensors.rollout.rows(), "sequences"));
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
    std::vector<int64_t> bounds;
    for (int64_t row = 0; row <= tensors.rollout.rows(); ++row) {
      bounds.push_back(row * tensors.rollout.columns());
    }
    return bounds;
  }
  RLK_ASSIGN_OR_RETURN(const std::vector<int64_t> bounds, Integers(*tensors.cu_seqlens));
  const auto wrong = [&](size_t entry, const std::string& allowed) {
    return InvalidArgument(
        Reason::kIndexOutOfRange, "cu_seqlens",
        "entry " + std::to_string(entry) + " is " + std::to_string(bounds[entry]), allowed,
        "the sequences do not cover the tokens");
  };
  if (bounds.front() != 0) return wrong(0, "0 to begin with");
  for (size_t i = 1; i < bounds.size(); ++i) {
    if (bounds[i] < bounds[i - 1]) {
      return wrong(i, "at least the one before, " + std::to_string(bounds[i - 1]));
    }
  }
  if (bounds.back() == tokens) return bounds;
  return wrong(bounds.size() - 1,
               "the number of tokens, " + std::to_string(tokens) + ", at the end");
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
    k3_ += ExpBeyondLine(d);
    chi2_token_ += std::expm1(2 * d);
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

  // `active`: of its tokens, also those that are not finite.
  void EndSequence(int64_t active) {
    ++result_.sequences;
    result_.empty_sequences += active == 0;
    if (sequence_tokens_ == 0) return;
    const auto n = static_cast<double>(sequence_tokens_);
    rollout_.Add(std::exp(-sequence_rollout_ / n));
    trainer_.Add(std::exp(-sequence_trainer_ / n));
    const double log_ratio = 0 - sequence_difference_ / n;
    log_perplexity_.Add(log_ratio);
    log_perplexity_abs_.Add(std::fabs(log_ratio));
    perplexity_ratio_.Add(std::exp(log_ratio));
    ratio_sum_.Add(std::exp(sequence_difference_));
    ratio_mean_.Add(std::exp(sequence_difference_ / n));
    log_sum_.Add(sequence_difference_);
    chi2_sequence_.Add(std::expm1(2 * sequence_difference_));
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
    r.k1 = 0 - r.mean;
    r.k2 = k2_ / n;
    r.k3 = k3_ / n;
    r.chi2_token = chi2_token_ / n;
    r.chi2_sequence = chi2_sequence_.mean();
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
  double k2_ = 0, k3_ = 0, chi2_token_ = 0;
  int64_t below_ = 0, above_ = 0, above_cap_ = 0;
  Accumulator rollout_, trainer_, perplexity_ratio_, log_perplexity_, log_perplexity_abs_;
  Accumulator ratio_sum_, ratio_mean_, log_sum_, chi2_sequence_;
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
  } else if (r.distribution && r.distribution->not_finite > 0) {
    r.failure = std::to_string(r.distribution->not_finite) +
                " active tokens have logits that are no distribution";
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
    if (s % kSliceTokens == 0) RLK_RETURN_IF_ERROR(interrupt.Check());
    const int64_t active_before = result.tokens;
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
    pass.EndSequence(result.tokens - active_before);
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
