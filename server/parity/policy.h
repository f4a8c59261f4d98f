// Log-probabilities of sampled tokens, by the rollout engine and by the trainer. Plain structs;
// rlk.v1.PolicyComparison has the same fields and says what each is.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/parity/interrupt.h"
#include "server/parity/parity_tensor.h"

namespace rlk::server {

// What a log-probability is of, as the caller declares it.
struct PolicySupport {
  double temperature = 0;
  double top_p = 0;
  int32_t top_k = 0;
  bool after_processors = false;
  std::optional<int32_t> softcap_applications = std::nullopt;

  bool truncated() const { return top_k > 0 || (top_p > 0 && top_p < 1); }
  friend bool operator==(const PolicySupport&, const PolicySupport&) = default;
};

struct PolicyOptions {
  DType execution_dtype = DType::kUnspecified;
  double ratio_cap = 2;
  int tokens_max = 16;
  PolicySupport rollout = {}, trainer = {};
};

struct PolicyTensors {
  ParityTensor rollout, trainer;
  std::optional<ParityTensor> mask, cu_seqlens, rollout_logits, trainer_logits;
};

// Of no values all 0.
struct Summary {
  double min = 0, mean = 0, max = 0, standard_deviation = 0;
};

struct PolicyToken {
  int64_t flat_index = 0, sequence = 0, position = 0;
  double rollout = 0, trainer = 0, difference = 0, ratio = 1;
};

struct ChainValue {
  std::string name;
  double value = 0, threshold = 0;
  bool passed = false;
};

struct PolicyComparison {
  int64_t tokens = 0, masked = 0, sequences = 0, empty_sequences = 0, not_finite = 0;
  int64_t mismatched = 0;

  double mean_abs = 0, max_abs = 0, p50_abs = 0, p99_abs = 0, mean = 0;
  Summary probability_abs;
  double k1 = 0, k2 = 0, k3 = 0, chi2_token = 0, chi2_sequence = 0;
  double rollout_perplexity = 0, trainer_perplexity = 0, perplexity_ratio = 1;
  Summary log_perplexity_difference;
  double log_perplexity_abs_difference = 0;
  Summary ratio_token, ratio_sequence_sum, ratio_sequence_mean, log_sequence_sum;
  double effective_sample_size = 0;
  double below = 0, above = 0, outside = 0, above_cap = 0, cap = 0;
  std::vector<PolicyToken> worst;

  bool passed = false;
  DType execution_dtype = DType::kUnspecified;
  std::vector<ChainValue> chain;
  std::string failure;

  struct Distribution {
    Summary kl, flip_margin;
    int64_t greedy_flips = 0, tokens = 0, not_finite = 0;
  };
  std::optional<Distribution> distribution;

  PolicySupport rollout_support, trainer_support;
  std::string support_note;
  std::map<std::string, double> metrics;
};

// Of tokens, and of sequences.
inline constexpr int64_t kPolicyTokensMax = int64_t{1} << 24;

// INVALID_ARGUMENT for tensors that do not belong together, naming the field,
// and (kLimitExceeded) for more than kPolicyTokensMax tokens or sequences.
absl::StatusOr<PolicyComparison> ComparePolicies(const PolicyTensors& tensors,
                                                 const PolicyOptions& options,
                                                 const Interrupt& interrupt);

}  // namespace rlk::server
