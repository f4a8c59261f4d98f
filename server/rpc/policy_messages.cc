#include "server/rpc/policy_messages.h"

#include <cmath>
#include <string>

#include "kernels/core/status.h"

namespace rlk::server {
namespace {

constexpr int kTokensListedMax = 256;
constexpr int kTokensListedDefault = 16;
constexpr double kRatioCapDefault = 2;

absl::StatusOr<PolicySupport> Support(const rlk::v1::PolicySupport& support,
                                      const std::string& field) {
  const auto check = [&field](const char* name, double value, double most) {
    if (std::isfinite(value) && value >= 0 && value <= most) return absl::OkStatus();
    return InvalidArgument(Reason::kAttributeOutOfRange, field + "." + name, std::to_string(value),
                           most == 1 ? "0 to 1" : "a finite number of at least 0",
                           "the value is out of range");
  };
  RLK_RETURN_IF_ERROR(check("temperature", support.temperature(), 1e300));
  RLK_RETURN_IF_ERROR(check("top_p", support.top_p(), 1));
  RLK_RETURN_IF_ERROR(check("top_k", support.top_k(), 1e300));
  RLK_RETURN_IF_ERROR(check("softcap_applications", support.softcap_applications(), 1e300));
  PolicySupport result{support.temperature(), support.top_p(), support.top_k(),
                       support.after_processors(), std::nullopt};
  if (support.has_softcap_applications()) {
    result.softcap_applications = support.softcap_applications();
  }
  return result;
}

void Fill(const PolicySupport& support, rlk::v1::PolicySupport& out) {
  out.set_temperature(support.temperature);
  out.set_top_p(support.top_p);
  out.set_top_k(support.top_k);
  out.set_after_processors(support.after_processors);
  if (support.softcap_applications) out.set_softcap_applications(*support.softcap_applications);
}

void Fill(const Summary& summary, rlk::v1::Summary& out) {
  out.set_min(summary.min);
  out.set_mean(summary.mean);
  out.set_max(summary.max);
  out.set_standard_deviation(summary.standard_deviation);
}

void FillDifference(const PolicyComparison& from, rlk::v1::LogprobDifference& out) {
  out.set_mean_abs(from.mean_abs);
  out.set_max_abs(from.max_abs);
  out.set_p50_abs(from.p50_abs);
  out.set_p99_abs(from.p99_abs);
  out.set_mean(from.mean);
  Fill(from.probability_abs, *out.mutable_probability_abs());
  out.set_mismatched(from.mismatched);
}

void FillRatios(const PolicyComparison& from, rlk::v1::ImportanceRatios& out) {
  Fill(from.ratio_token, *out.mutable_token());
  Fill(from.ratio_sequence_sum, *out.mutable_sequence_sum());
  Fill(from.ratio_sequence_mean, *out.mutable_sequence_mean());
  Fill(from.log_sequence_sum, *out.mutable_log_sequence_sum());
  out.set_effective_sample_size(from.effective_sample_size);
  out.set_below(from.below);
  out.set_above(from.above);
  out.set_outside(from.outside);
  out.set_above_cap(from.above_cap);
  out.set_cap(from.cap);
}

void FillChain(const PolicyComparison& from, rlk::v1::ChainJudgment& out) {
  out.set_passed(from.passed);
  out.set_execution_dtype(static_cast<rlk::v1::DataType>(from.execution_dtype));
  for (const ChainValue& value : from.chain) {
    auto* entry = out.add_values();
    entry->set_name(value.name);
    entry->set_value(value.value);
    entry->set_threshold(value.threshold);
    entry->set_passed(value.passed);
  }
  out.set_failure(from.failure);
}

void FillToken(const PolicyToken& token, rlk::v1::PolicyToken& out) {
  out.set_flat_index(token.flat_index);
  out.set_sequence(token.sequence);
  out.set_position(token.position);
  out.set_rollout(token.rollout);
  out.set_trainer(token.trainer);
  out.set_difference(token.difference);
  out.set_ratio(token.ratio);
}

}  // namespace

absl::StatusOr<PolicyOptions> FromProto(const rlk::v1::PolicyOptions& options) {
  PolicyOptions result;
  result.execution_dtype = static_cast<DType>(options.execution_dtype());
  if (result.execution_dtype != DType::kUnspecified && !IsFloat(result.execution_dtype)) {
    return InvalidArgument(Reason::kDtypeNotAllowed, "options.execution_dtype",
                           DTypeName(result.execution_dtype), "F32, F16, BF16, F64",
                           "the chain has no thresholds for the dtype");
  }
  const double cap = options.ratio_cap();
  if (!std::isfinite(cap) || cap < 0) {
    return InvalidArgument(Reason::kAttributeOutOfRange, "options.ratio_cap", std::to_string(cap),
                           "a finite number of at least 0", "the cap is out of range");
  }
  result.ratio_cap = cap == 0 ? kRatioCapDefault : cap;
  if (options.tokens_max() < 0 || options.tokens_max() > kTokensListedMax) {
    return InvalidArgument(Reason::kLimitExceeded, "options.tokens_max",
                           std::to_string(options.tokens_max()),
                           "0 to " + std::to_string(kTokensListedMax), "too many tokens to list");
  }
  result.tokens_max = options.tokens_max() == 0 ? kTokensListedDefault : options.tokens_max();
  RLK_ASSIGN_OR_RETURN(result.rollout,
                       Support(options.rollout_support(), "options.rollout_support"));
  RLK_ASSIGN_OR_RETURN(result.trainer,
                       Support(options.trainer_support(), "options.trainer_support"));
  return result;
}

void FillPolicy(const PolicyComparison& from, rlk::v1::PolicyComparison& out) {
  out.set_tokens(from.tokens);
  out.set_masked(from.masked);
  out.set_sequences(from.sequences);
  out.set_empty_sequences(from.empty_sequences);
  out.set_not_finite(from.not_finite);
  FillDifference(from, *out.mutable_difference());
  out.mutable_kl()->set_k1(from.k1);
  out.mutable_kl()->set_k2(from.k2);
  out.mutable_kl()->set_k3(from.k3);
  out.mutable_kl()->set_chi2_token(from.chi2_token);
  out.mutable_kl()->set_chi2_sequence(from.chi2_sequence);
  out.mutable_perplexity()->set_rollout(from.rollout_perplexity);
  out.mutable_perplexity()->set_trainer(from.trainer_perplexity);
  out.mutable_perplexity()->set_ratio(from.perplexity_ratio);
  Fill(from.log_perplexity_difference, *out.mutable_perplexity()->mutable_log_difference());
  out.mutable_perplexity()->set_log_abs_difference(from.log_perplexity_abs_difference);
  FillRatios(from, *out.mutable_ratios());
  for (const PolicyToken& token : from.worst) FillToken(token, *out.add_worst());
  FillChain(from, *out.mutable_chain());
  if (from.distribution) {
    auto* distribution = out.mutable_distribution();
    Fill(from.distribution->kl, *distribution->mutable_kl());
    distribution->set_greedy_flips(from.distribution->greedy_flips);
    Fill(from.distribution->flip_margin, *distribution->mutable_flip_margin());
    distribution->set_tokens(from.distribution->tokens);
    distribution->set_not_finite(from.distribution->not_finite);
  }
  Fill(from.rollout_support, *out.mutable_rollout_support());
  Fill(from.trainer_support, *out.mutable_trainer_support());
  out.set_support_note(from.support_note);
  for (const auto& [name, value] : from.metrics) (*out.mutable_metrics())[name] = value;
}

}  // namespace rlk::server
