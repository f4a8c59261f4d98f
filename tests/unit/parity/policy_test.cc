// Log-probabilities of rollout and trainer: figures against their definitions, and the chain.
#include "server/parity/policy.h"

#include "kernels/core/status.h"
#include "tests/unit/parity/parity_data.h"

namespace rlk::test {
namespace {

using server::ComparePolicies;
using server::PolicyComparison;
using server::PolicyOptions;
using server::PolicyTensors;

server::ParityTensor Doubles(const Dims& shape, const std::vector<double>& values) {
  return TensorOf(DType::kF64, shape, values.data());
}
server::ParityTensor Integers(const std::vector<int32_t>& values) {
  return TensorOf(DType::kI32, {static_cast<int64_t>(values.size())}, values.data());
}

PolicyComparison Policies(const PolicyTensors& tensors, const PolicyOptions& options = {}) {
  const auto comparison = ComparePolicies(tensors, options, {});
  EXPECT_TRUE(comparison.ok()) << comparison.status();
  return comparison.ok() ? *comparison : PolicyComparison();
}

// Four tokens in two sequences; d = trainer - rollout = 0.1, -0.3, 0, 0.2.
PolicyTensors FourTokens() {
  PolicyTensors tensors;
  tensors.rollout = Doubles({2, 2}, {-1, -2, -0.5, -3});
  tensors.trainer = Doubles({2, 2}, {-0.9, -2.3, -0.5, -2.8});
  return tensors;
}

TEST(Policy, FiguresAreThoseOfTheirDefinitions) {
  const PolicyComparison r = Policies(FourTokens(), {.ratio_cap = 1.21});
  EXPECT_EQ(r.tokens, 4);
  EXPECT_EQ(r.sequences, 2);
  EXPECT_EQ(r.mismatched, 3);
  constexpr double kNear = 1e-14;
  EXPECT_NEAR(r.mean_abs, 0.15, kNear);
  EXPECT_NEAR(r.max_abs, 0.3, kNear);
  EXPECT_NEAR(r.p50_abs, 0.1, kNear);
  EXPECT_NEAR(r.p99_abs, 0.3, kNear);
  EXPECT_NEAR(r.k1, 0.0, kNear);
  EXPECT_NEAR(r.k2, (0.01 + 0.09 + 0.04) / 8, kNear);
  const double ratios[] = {std::exp(0.1), std::exp(-0.3), 1, std::exp(0.2)};
  double k3 = 0, sum = 0, squares = 0;
  const double d[] = {0.1, -0.3, 0, 0.2};
  for (int i = 0; i < 4; ++i) {
    k3 += (ratios[i] - 1 - d[i]) / 4;
    sum += ratios[i];
    squares += ratios[i] * ratios[i];
  }
  EXPECT_NEAR(r.k3, k3, kNear);
  EXPECT_NEAR(r.chi2_token, squares / 4 - 1, kNear);
  EXPECT_NEAR(r.chi2_sequence, (std::exp(-0.4) + std::exp(0.4)) / 2 - 1, kNear);
  EXPECT_NEAR(r.ratio_token.mean, sum / 4, kNear);
  EXPECT_NEAR(r.ratio_token.min, ratios[1], kNear);
  EXPECT_NEAR(r.ratio_token.max, ratios[3], kNear);
  EXPECT_NEAR(r.effective_sample_size, sum * sum / (4 * squares), kNear);
  EXPECT_NEAR(r.rollout_perplexity, (std::exp(1.5) + std::exp(1.75)) / 2, kNear);
  EXPECT_NEAR(r.trainer_perplexity, (std::exp(1.6) + std::exp(1.65)) / 2, kNear);
  EXPECT_NEAR(r.log_perplexity_difference.mean, 0, kNear);
  EXPECT_NEAR(r.log_perplexity_difference.max, 0.1, kNear);
  EXPECT_NEAR(r.log_perplexity_abs_difference, 0.1, kNear);
  EXPECT_NEAR(r.perplexity_ratio, (std::exp(0.1) + std::exp(-0.1)) / 2, kNear);
  EXPECT_EQ(r.below, 0.25);
  EXPECT_EQ(r.above, 0.25);
  EXPECT_EQ(r.outside, 0.5);
  EXPECT_EQ(r.above_cap, 0.25);
  EXPECT_NEAR(r.probability_abs.max, std::exp(-0.9) - std::exp(-1), kNear);
  ASSERT_EQ(r.worst.size(), 3u);
  EXPECT_EQ(r.worst[0].flat_index, 1);
  EXPECT_EQ(r.worst[1].flat_index, 3);
  EXPECT_EQ(r.worst[1].sequence, 1);
  EXPECT_EQ(r.worst[1].position, 1);
}

// The sides of a service that works differ by rounding: the figures of small differences are those
// of their series, and not of what rounding leaves of 1 + d.
TEST(Policy, SmallDifferencesKeepTheirDigits) {
  for (const double scale : {1e-3, 1e-6, 1e-9, 1e-12}) {
    std::vector<double> rollout, trainer;
    double squares = 0, variance = 0, mean = 0;
    for (int i = 0; i < 64; ++i) {
      // Near 0 a log-probability has all those digits.
      rollout.push_back(-0x1p-40 * (i + 1));
      trainer.push_back(rollout.back() + scale * (i % 7 - 2.5));
      const double d = trainer.back() - rollout.back();
      squares += d * d / 64;
      mean += d / 64;
    }
    for (size_t i = 0; i < 64; ++i) {
      const double d = trainer[i] - rollout[i] - mean;
      variance += d * d / 64;
    }
    PolicyTensors tensors;
    tensors.rollout = Doubles({4, 16}, rollout);
    tensors.trainer = Doubles({4, 16}, trainer);
    const PolicyComparison r = Policies(tensors);
    const double near = 4 * scale;  // of the next term of the series
    EXPECT_NEAR(r.k3 / (squares / 2), 1, near) << scale;
    EXPECT_NEAR(r.k2 / (squares / 2), 1, 1e-12) << scale;
    EXPECT_NEAR(r.chi2_token / (2 * mean), 1, 16 * near + 1e-12) << scale;
    // The ratios themselves have 2^-53 beside 1.
    const double rounding = 0x1p-52 / std::sqrt(variance);
    EXPECT_NEAR(r.ratio_token.standard_deviation / std::sqrt(variance), 1, near + rounding)
        << scale;
    EXPECT_NEAR(r.log_perplexity_difference.mean / -mean, 1, 1e-12) << scale;
  }
}

TEST(Policy, EqualSidesHaveNoMinusInTheirZeros) {
  PolicyTensors tensors = FourTokens();
  tensors.trainer = tensors.rollout;
  for (const auto& [name, value] : Policies(tensors).metrics) {
    EXPECT_FALSE(std::signbit(value)) << name;
  }
}

TEST(Policy, K3IsNeverNegative) {
  Random random(11);
  for (int i = 0; i < 1000; ++i) {
    const double x = -1e-3 * random.Uniform();
    PolicyTensors tensors;
    tensors.rollout = Doubles({1}, {x});
    tensors.trainer = Doubles({1}, {x + 1e-8 * random.Normal()});
    EXPECT_GE(Policies(tensors).k3, 0) << x;
  }
}

TEST(Policy, RatiosBeyondTheRangeHaveNoSpreadOfZero) {
  PolicyTensors tensors;
  tensors.rollout = Doubles({3}, {-1, -2, -800});
  tensors.trainer = Doubles({3}, {-1, -2, 0});
  const PolicyComparison r = Policies(tensors);
  EXPECT_EQ(r.ratio_token.max, INFINITY);
  EXPECT_TRUE(std::isnan(r.ratio_token.standard_deviation));
  EXPECT_EQ(r.k3, INFINITY);
  EXPECT_EQ(r.max_abs, 800);
  EXPECT_FALSE(r.passed);
}

// The ratio of a sequence is the product of its tokens', or its geometric mean: one of them reads
// 0.57 where the other reads 0.99.
TEST(Policy, SumAndMeanOfASequenceAreBothGivenByName) {
  constexpr int64_t kTokens = 80;
  PolicyTensors tensors;
  tensors.rollout = Doubles({1, kTokens}, std::vector<double>(kTokens, -1));
  tensors.trainer = Doubles({1, kTokens}, std::vector<double>(kTokens, -1.007));
  const PolicyComparison r = Policies(tensors);
  EXPECT_NEAR(r.ratio_sequence_sum.mean, std::exp(-0.56), 1e-12);
  EXPECT_NEAR(r.ratio_sequence_mean.mean, std::exp(-0.007), 1e-12);
  EXPECT_NEAR(r.log_sequence_sum.mean, -0.56, 1e-12);
}

TEST(Policy, MaskAndBoundsSelectTheTokens) {
  PolicyTensors padded = FourTokens();
  const std::vector<uint8_t> mask = {1, 1, 1, 0};
  padded.mask = TensorOf(DType::kU8, {2, 2}, mask.data());
  PolicyTensors packed;
  packed.rollout = Doubles({3}, {-1, -2, -0.5});
  packed.trainer = Doubles({3}, {-0.9, -2.3, -0.5});
  packed.cu_seqlens = Integers({0, 2, 2, 3});
  const PolicyComparison a = Policies(padded), b = Policies(packed);
  EXPECT_EQ(a.masked, 1);
  EXPECT_EQ(b.masked, 0);
  EXPECT_EQ(a.sequences, 2);
  EXPECT_EQ(b.sequences, 3);
  EXPECT_EQ(b.empty_sequences, 1);
  EXPECT_EQ(a.metrics, b.metrics);
}

TEST(Policy, EveryRowIsASequenceAndOneWithoutAnActiveTokenIsEmpty) {
  PolicyTensors tensors;
  tensors.rollout = Doubles({3, 2}, {-1, -1, NAN, -1, -1, -1});
  tensors.trainer = Doubles({3, 2}, {-1, -1, -1, INFINITY, -1, -1});
  const std::vector<uint8_t> mask = {1, 1, 1, 1, 0, 0};
  tensors.mask = TensorOf(DType::kU8, {3, 2}, mask.data());
  PolicyComparison r = Policies(tensors);
  EXPECT_EQ(r.sequences, 3);
  EXPECT_EQ(r.not_finite, 2);
  EXPECT_EQ(r.empty_sequences, 1);
  for (const auto& [shape, rows] : {std::pair{Dims{3, 0}, 3}, {Dims{0, 3}, 0}, {Dims{0}, 1}}) {
    PolicyTensors none;
    none.rollout = none.trainer = TensorOf(DType::kF32, shape, nullptr);
    r = Policies(none);
    EXPECT_EQ(r.sequences, rows);
    EXPECT_EQ(r.empty_sequences, rows);
    EXPECT_EQ(r.failure, "no token is active");
  }
}

TEST(Policy, SequencesWithoutTokensLookAtTheClockToo) {
  PolicyTensors tensors;
  tensors.rollout = tensors.trainer = Doubles({0}, {});
  tensors.cu_seqlens = Integers(std::vector<int32_t>(200000));
  int looks = 0;
  const auto stopped = ComparePolicies(tensors, {}, {.cancelled = [&] { return ++looks == 3; }});
  EXPECT_EQ(stopped.status().code(), absl::StatusCode::kCancelled);
}

TEST(Policy, TheChainHasItsThresholdsAndHardFailures) {
  struct Case {
    const char* name;
    DType execution;
    double d;
    bool passed;
  } const cases[] = {
      {"equal", DType::kF32, 0, true},
      {"fp32 inside", DType::kF32, 0.9e-5, true},
      {"fp32 outside", DType::kF32, 1.1e-5, false},
      {"bf16 inside", DType::kBF16, 5.9e-2, true},
      {"bf16 outside", DType::kBF16, 6.1e-2, false},
      {"fp16 inside", DType::kF16, 4.9e-3, true},
      {"fp16 outside", DType::kF16, 5.1e-3, false},
  };
  for (const Case& c : cases) {
    PolicyTensors tensors;
    tensors.rollout = Doubles({2}, {-1, -2});
    tensors.trainer = Doubles({2}, {-1, -2 + c.d});
    const PolicyComparison r = Policies(tensors, {.execution_dtype = c.execution});
    EXPECT_EQ(r.passed, c.passed) << c.name;
    ASSERT_EQ(r.chain.size(), 3u);
    EXPECT_EQ(r.chain[0].name, "max_abs_dlogp");
    EXPECT_EQ(r.chain[1].name, "approx_kl0");
    EXPECT_EQ(r.chain[2].name, "clipfrac0");
  }
  PolicyTensors nan = FourTokens();
  nan.trainer = Doubles({2, 2}, {-1, NAN, -0.5, -3});
  PolicyComparison r = Policies(nan, {.execution_dtype = DType::kBF16});
  EXPECT_FALSE(r.passed);
  EXPECT_EQ(r.not_finite, 1);
  EXPECT_NE(r.failure, "");
  PolicyTensors empty = FourTokens();
  const std::vector<uint8_t> none(4);
  empty.mask = TensorOf(DType::kBool, {2, 2}, none.data());
  r = Policies(empty);
  EXPECT_FALSE(r.passed);
  EXPECT_EQ(r.failure, "no token is active");
  EXPECT_EQ(r.empty_sequences, 2);
}

// Sampling from the kept mass alone renormalises: every ratio is that mass, and the report says so.
TEST(Policy, ATruncatedSupportIsSaidAndNotTakenForDrift) {
  constexpr double kMass = 0.895;
  const std::vector<double> trainer = {-1, -0.7, -2};
  std::vector<double> rollout = trainer;
  for (double& value : rollout) value -= std::log(kMass);
  PolicyTensors tensors;
  tensors.rollout = Doubles({3}, rollout);
  tensors.trainer = Doubles({3}, trainer);
  PolicyOptions options;
  options.rollout = {.temperature = 1, .top_p = 0.9, .after_processors = true};
  options.trainer = {.temperature = 1};
  PolicyComparison r = Policies(tensors, options);
  EXPECT_NEAR(r.ratio_token.mean, kMass, 1e-12);
  EXPECT_NE(r.support_note.find("mass that was kept"), std::string::npos) << r.support_note;
  options.rollout = options.trainer;
  EXPECT_EQ(Policies(tensors, options).support_note, "");
  options.rollout.softcap_applications = 1;
  options.trainer.softcap_applications = 0;
  EXPECT_NE(Policies(tensors, options).support_note.find("softcap"), std::string::npos);
}

TEST(Policy, WholeDistributionsAndGreedyChoicesComeFromLogits) {
  PolicyTensors tensors;
  tensors.rollout = Doubles({2}, {-1, -1});
  tensors.trainer = tensors.rollout;
  tensors.rollout_logits = Doubles({2, 3}, {1, 0, 0, 2, 1.5, 0});
  tensors.trainer_logits = Doubles({2, 3}, {1, 0, 0, 1.5, 2, 0});
  const PolicyComparison r = Policies(tensors);
  ASSERT_TRUE(r.distribution.has_value());
  EXPECT_EQ(r.distribution->tokens, 2);
  EXPECT_EQ(r.distribution->greedy_flips, 1);
  EXPECT_NEAR(r.distribution->flip_margin.mean, 0.5, 1e-15);
  EXPECT_NEAR(r.distribution->kl.min, 0, 1e-15);
  const double z = std::exp(2) + std::exp(1.5) + 1;
  EXPECT_NEAR(r.distribution->kl.max, (std::exp(2) - std::exp(1.5)) / z * 0.5, 1e-14);
}

TEST(Policy, LogitsOfAlmostOneDistributionHaveAlmostNoDivergence) {
  // p log(p / q) of two halves: 2 tanh^2 of half the step, to first order its square over 8.
  for (const double step : {1e-2, 1e-5, 1e-8}) {
    PolicyTensors tensors;
    tensors.rollout = tensors.trainer = Doubles({1}, {-1});
    tensors.rollout_logits = Doubles({1, 2}, {0, 0});
    tensors.trainer_logits = Doubles({1, 2}, {0, step});
    const double kl = Policies(tensors).distribution->kl.mean;
    EXPECT_NEAR(kl / (step * step / 8), 1, step + 1e-7) << step;
  }
}

TEST(Policy, TokensLeftOutOfTheVocabularyAreInNoDivergence) {
  PolicyTensors tensors;
  tensors.rollout = tensors.trainer = Doubles({2}, {-1, -1});
  tensors.rollout_logits = Doubles({2, 3}, {1, 0, -INFINITY, 1, 0, -INFINITY});
  tensors.trainer_logits = Doubles({2, 3}, {1, 0, -INFINITY, 1, 0, 0.5});
  const PolicyComparison r = Policies(tensors);
  EXPECT_EQ(r.distribution->tokens, 2);
  EXPECT_EQ(r.distribution->kl.min, 0);
  const double kept = std::exp(1) + 1, all = kept + std::exp(0.5);
  EXPECT_NEAR(r.distribution->kl.max, std::log(all / kept), 1e-15);
  EXPECT_TRUE(r.passed) << r.failure;
  std::swap(tensors.rollout_logits, tensors.trainer_logits);
  EXPECT_EQ(Policies(tensors).distribution->kl.max, INFINITY);
}

// A NaN among the logits must not read as no divergence.
TEST(Policy, LogitsThatAreNoDistributionFailAndAreInNoFigure) {
  struct Case {
    const char* name;
    std::vector<double> logits;
  } const cases[] = {{"a NaN", {0, NAN, 1}},
                     {"all NaN", {NAN, NAN, NAN}},
                     {"+infinity", {0, INFINITY, 1}},
                     {"-infinity alone", {-INFINITY, -INFINITY, -INFINITY}}};
  for (const Case& c : cases) {
    for (const bool left : {true, false}) {
      PolicyTensors tensors;
      tensors.rollout = tensors.trainer = Doubles({2}, {-1, -1});
      std::vector<double> logits = {1, 0, 0};
      logits.insert(logits.end(), c.logits.begin(), c.logits.end());
      tensors.rollout_logits = Doubles({2, 3}, {1, 0, 0, 1, 0, 0});
      tensors.trainer_logits = Doubles({2, 3}, {1, 0, 0.5, 1, 0, 0});
      (left ? tensors.rollout_logits : tensors.trainer_logits) = Doubles({2, 3}, logits);
      PolicyComparison r = Policies(tensors);
      ASSERT_TRUE(r.distribution.has_value());
      EXPECT_EQ(r.distribution->not_finite, 1) << c.name;
      EXPECT_EQ(r.distribution->tokens, 1) << c.name;
      EXPECT_EQ(r.distribution->greedy_flips, 0) << c.name;
      EXPECT_EQ(r.distribution->kl.min, r.distribution->kl.max) << c.name;
      EXPECT_FALSE(r.passed) << c.name;
      EXPECT_NE(r.failure.find("no distribution"), std::string::npos) << c.name;
      // Of a token that is left out nobody asks.
      const std::vector<uint8_t> mask = {1, 0};
      tensors.mask = TensorOf(DType::kU8, {2}, mask.data());
      r = Policies(tensors);
      EXPECT_TRUE(r.passed) << c.name << ": " << r.failure;
      EXPECT_EQ(r.distribution->not_finite, 0) << c.name;
    }
  }
}

TEST(Policy, NarrowDtypesAreReadAsTheyAre) {
  PolicyTensors tensors;
  tensors.rollout = TensorOf(DType::kBF16, {2}, std::vector<double>{-1, -2});
  tensors.trainer = TensorOf(DType::kF32, {2}, std::vector<double>{-1, -2.0625});
  const PolicyComparison r = Policies(tensors);
  EXPECT_EQ(r.max_abs, 0.0625);
  EXPECT_EQ(r.execution_dtype, DType::kBF16);
}

TEST(Policy, SaysWhichBoundOfASequenceIsWrong) {
  struct Case {
    std::vector<int32_t> bounds;
    const char* value;
    const char* allowed;
  } const cases[] = {
      {{1, 4}, "entry 0 is 1", "0 to begin with"},
      {{0, 3, 2, 4}, "entry 2 is 2", "at least the one before, 3"},
      {{0, 3}, "entry 1 is 3", "the number of tokens, 4, at the end"},
      {{0, 9}, "entry 1 is 9", "the number of tokens, 4, at the end"},
  };
  for (const Case& c : cases) {
    PolicyTensors tensors = FourTokens();
    tensors.cu_seqlens = Integers(c.bounds);
    const auto detail = GetErrorDetail(ComparePolicies(tensors, {}, {}).status());
    ASSERT_TRUE(detail.has_value()) << c.value;
    EXPECT_EQ(detail->reason, Reason::kIndexOutOfRange);
    EXPECT_EQ(detail->value, c.value);
    EXPECT_EQ(detail->allowed, c.allowed);
  }
}

TEST(Policy, RefusesTensorsThatDoNotBelongTogether) {
  struct Case {
    const char* field;
    Reason reason;
    void (*change)(PolicyTensors&);
  } const cases[] = {
      {"trainer", Reason::kShapeMismatch,
       [](PolicyTensors& t) {
         t.trainer = Doubles({4}, {1, 2, 3, 4});
       }},
      {"rollout", Reason::kDtypeNotAllowed, [](PolicyTensors& t) { t.rollout = Integers({1}); }},
      {"mask", Reason::kDtypeNotAllowed, [](PolicyTensors& t) { t.mask = t.rollout; }},
      {"mask", Reason::kShapeMismatch, [](PolicyTensors& t) { t.mask = Integers({1}); }},
      {"cu_seqlens", Reason::kIndexOutOfRange,
       [](PolicyTensors& t) {
         t.cu_seqlens = Integers({0, 3});
       }},
      {"cu_seqlens", Reason::kIndexOutOfRange,
       [](PolicyTensors& t) {
         t.cu_seqlens = Integers({0, 3, 2, 4});
       }},
      {"cu_seqlens", Reason::kIndexOutOfRange,
       [](PolicyTensors& t) {
         t.cu_seqlens = Integers({-1, 4});
       }},
      {"cu_seqlens", Reason::kDtypeNotAllowed, [](PolicyTensors& t) { t.cu_seqlens = t.rollout; }},
      {"cu_seqlens", Reason::kLimitExceeded,
       [](PolicyTensors& t) {
         t.cu_seqlens = Integers({0});
         t.cu_seqlens->shape = {server::kPolicyTokensMax + 2};
       }},
      {"rollout", Reason::kLimitExceeded,
       [](PolicyTensors& t) {
         t.rollout = t.trainer = TensorOf(DType::kF32, {server::kPolicyTokensMax + 1, 0}, nullptr);
       }},
      {"trainer_logits", Reason::kMissingTensor,
       [](PolicyTensors& t) {
         t.rollout_logits = Doubles({2, 2, 1}, {1, 2, 3, 4});
       }},
      {"rollout_logits", Reason::kShapeMismatch,
       [](PolicyTensors& t) {
         t.rollout_logits = Doubles({4, 1}, {1, 2, 3, 4});
         t.trainer_logits = t.rollout_logits;
       }},
  };
  for (const Case& c : cases) {
    PolicyTensors tensors = FourTokens();
    c.change(tensors);
    const auto detail = GetErrorDetail(ComparePolicies(tensors, {}, {}).status());
    ASSERT_TRUE(detail.has_value()) << c.field;
    EXPECT_EQ(detail->field, c.field);
    EXPECT_EQ(detail->reason, c.reason) << c.field;
  }
}

}  // namespace
}  // namespace rlk::test
