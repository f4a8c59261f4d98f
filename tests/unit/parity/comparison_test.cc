// Verdicts: the three judgments apart, and a defined one for every two tensors.
#include "server/parity/comparison.h"

#include <limits>

#include "kernels/core/status.h"
#include "server/parity/digests.h"
#include "tests/unit/parity/parity_data.h"

namespace rlk::test {
namespace {

using server::Comparison;
using server::ComparisonOptions;
using server::Difference;
using server::Judgment;
using server::ParityTensor;
using server::TriageClass;

const server::ComparisonContext kContext = {&server::ToleranceContract::Builtin(), nullptr};

ParityTensor Floats(const Dims& shape, const std::vector<float>& values) {
  return TensorOf(DType::kF32, shape, values.data());
}

TEST(Comparison, AnyTwoTensorsHaveAVerdict) {
  const std::vector<float> six = {1, 2, 3, 4, 5, 6};
  const std::vector<int32_t> integers = {1, 2, 3, 4, 5, 6};
  const float plus = 0.0f, minus = -0.0f;
  const uint32_t quiet = 0x7fc00000, payload = 0x7fc12345;
  struct Case {
    const char* name;
    ParityTensor left, right;
    Difference difference;
    TriageClass triage;
  } const cases[] = {
      {"equal", Floats({2, 3}, six), Floats({2, 3}, six), Difference::kNothing, TriageClass::kNone},
      {"another shape", Floats({2, 3}, six), Floats({3, 2}, six), Difference::kShape,
       TriageClass::kIncomparable},
      {"another rank", Floats({6}, six), Floats({6, 1}, six), Difference::kShape,
       TriageClass::kIncomparable},
      {"another dtype", Floats({6}, six), TensorOf(DType::kI32, {6}, integers.data()),
       Difference::kDtype, TriageClass::kIncomparable},
      {"empty", Floats({0, 3}, {}), Floats({0, 3}, {}), Difference::kNothing, TriageClass::kNone},
      {"empty with rows", Floats({3, 0}, {}), Floats({3, 0}, {}), Difference::kNothing,
       TriageClass::kNone},
      {"empty of another shape", Floats({0, 3}, {}), Floats({3, 0}, {}), Difference::kShape,
       TriageClass::kIncomparable},
      {"scalars", Floats({}, {1}), Floats({}, {2}), Difference::kBits, TriageClass::kUnclassified},
      {"signs of zero", TensorOf(DType::kF32, {1}, &plus), TensorOf(DType::kF32, {1}, &minus),
       Difference::kBits, TriageClass::kZeroSign},
      {"NaN payloads", TensorOf(DType::kF32, {}, &quiet), TensorOf(DType::kF32, {}, &payload),
       Difference::kBits, TriageClass::kNanPayload},
      {"equal NaN", TensorOf(DType::kF32, {}, &payload), TensorOf(DType::kF32, {}, &payload),
       Difference::kNothing, TriageClass::kNone},
  };
  for (const Case& c : cases) {
    for (const Judgment judgment : {Judgment::kParity, Judgment::kInvariance}) {
      const Comparison comparison = Compared(c.left, c.right, {.judgment = judgment});
      EXPECT_EQ(comparison.difference, c.difference) << c.name;
      EXPECT_EQ(comparison.passed, c.difference == Difference::kNothing) << c.name;
      if (c.triage != TriageClass::kUnclassified) {
        EXPECT_EQ(server::TriageName(comparison.triage.triage), server::TriageName(c.triage))
            << c.name;
      }
      ASSERT_TRUE(comparison.left.digest && comparison.right.digest) << c.name;
      EXPECT_EQ(comparison.left.digest == comparison.right.digest,
                c.difference == Difference::kNothing)
          << c.name;
    }
  }
}

// The same special values by the tolerance contract: what counts as a number is judged as one.
TEST(Comparison, AccuracyOfSpecialValues) {
  const uint32_t quiet = 0x7fc00000, payload = 0x7fc12345;
  const float infinity = std::numeric_limits<float>::infinity();
  struct Case {
    const char* name;
    ParityTensor left, right;
    bool passed;
    TriageClass triage;
  } const cases[] = {
      {"empty", Floats({0, 3}, {}), Floats({0, 3}, {}), true, TriageClass::kNone},
      {"scalar inside", Floats({}, {1}), Floats({}, {1.000001f}), true, TriageClass::kUnclassified},
      {"scalar outside", Floats({}, {1}), Floats({}, {2}), false, TriageClass::kUnclassified},
      {"signs of zero", Floats({1}, {0.0f}), Floats({1}, {-0.0f}), true, TriageClass::kZeroSign},
      {"NaN payloads", TensorOf(DType::kF32, {1}, &quiet), TensorOf(DType::kF32, {1}, &payload),
       true, TriageClass::kNanPayload},
      {"NaN on one side", TensorOf(DType::kF32, {1}, &quiet), Floats({1}, {1}), false,
       TriageClass::kNonfinite},
      {"infinities of other signs", Floats({1}, {infinity}), Floats({1}, {-infinity}), false,
       TriageClass::kNonfinite},
      {"another shape", Floats({2}, {1, 2}), Floats({2, 1}, {1, 2}), false,
       TriageClass::kIncomparable},
  };
  for (const Case& c : cases) {
    const Comparison comparison =
        Compared(c.left, c.right,
                 {.judgment = Judgment::kAccuracy,
                  .tolerance = server::ToleranceRow{OpClass::kElementwise, false}});
    EXPECT_EQ(comparison.passed, c.passed) << c.name;
    if (c.triage == TriageClass::kUnclassified) continue;
    EXPECT_EQ(server::TriageName(comparison.triage.triage), server::TriageName(c.triage)) << c.name;
  }
}

TEST(Comparison, CanonicalDigestsSeeThroughNanPayloads) {
  const std::vector<uint32_t> left = {0x7fc12345, 0x3f800000}, right = {0xffc00000, 0x3f800000};
  const Comparison comparison =
      Compared(TensorOf(DType::kF32, {2}, left.data()), TensorOf(DType::kF32, {2}, right.data()));
  EXPECT_NE(comparison.left.digest, comparison.right.digest);
  EXPECT_EQ(comparison.left.canonical_nan_digest, comparison.right.canonical_nan_digest);
  const std::vector<uint32_t> canonical = {0x7fffffff, 0x3f800000};
  EXPECT_EQ(comparison.left.canonical_nan_digest,
            ComputeDigest({DType::kF32, {2}, {1}, canonical.data()}));
}

TEST(Comparison, EachDtypeIsJudgedByItsRow) {
  struct Case {
    DType dtype;
    OpClass op_class;
    bool gradient;
    double right, inside, outside;
    const char* row;
  } const cases[] = {
      {DType::kF32, OpClass::kElementwise, false, 1, 1.000019, 1.000021,
       "forward_accuracy/elementwise/float32"},
      {DType::kBF16, OpClass::kElementwise, false, 1, 1.03125, 1.0390625,
       "forward_accuracy/elementwise/bfloat16"},
      {DType::kBF16, OpClass::kReduction, false, 1, 1.0625, 1.078125,
       "forward_accuracy/reduction/bfloat16"},
      {DType::kBF16, OpClass::kReduction, true, 1, 1.1171875, 1.125,
       "gradient_accuracy/reduction/bfloat16"},
      {DType::kF16, OpClass::kLogprob, false, -1, -1.0048828125, -1.005859375,
       "forward_accuracy/logprob/float16"},
  };
  for (const Case& c : cases) {
    for (const bool inside : {true, false}) {
      const double left = inside ? c.inside : c.outside;
      const Comparison comparison =
          Compared(TensorOf(c.dtype, {1}, std::vector<double>{left}),
                   TensorOf(c.dtype, {1}, std::vector<double>{c.right}),
                   {.judgment = Judgment::kAccuracy,
                    .tolerance = server::ToleranceRow{c.op_class, c.gradient}});
      EXPECT_EQ(comparison.passed, inside) << c.row << " " << left;
      EXPECT_EQ(comparison.rule.row, c.row);
      EXPECT_EQ(comparison.rule.outside, inside ? 0 : 1);
      EXPECT_EQ(comparison.rule.worst_excess > 0, !inside);
      EXPECT_EQ(comparison.difference, Difference::kBits);
    }
  }
}

TEST(Comparison, ANanOnOneSideIsOutsideEveryTolerance) {
  const std::vector<float> right = {1, 2, INFINITY}, left = {NAN, 2, INFINITY};
  const ComparisonOptions options = {.judgment = Judgment::kAccuracy,
                                     .tolerance = server::ToleranceRow{OpClass::kAttention, true}};
  const Comparison comparison = Compared(Floats({3}, left), Floats({3}, right), options);
  EXPECT_FALSE(comparison.passed);
  EXPECT_EQ(comparison.rule.outside, 1);
  EXPECT_TRUE(Compared(Floats({3}, right), Floats({3}, right), options).passed);
}

TEST(Comparison, AReferenceMayBeWiderAndOnlyForAccuracy) {
  const std::vector<double> gold = {1.0001, 2, 3.02};
  ParityTensor left = TensorOf(DType::kBF16, {3}, gold);
  const ParityTensor right = TensorOf(DType::kF64, {3}, gold.data());
  const ComparisonOptions options = {
      .judgment = Judgment::kAccuracy,
      .tolerance = server::ToleranceRow{OpClass::kElementwise, false}};
  Comparison comparison = Compared(left, right, options);
  EXPECT_TRUE(comparison.passed);
  // The candidate is the reference's own rounding.
  EXPECT_EQ(comparison.difference, Difference::kNothing);
  EXPECT_GT(comparison.magnitude.max_abs, 0);
  MutableElements<uint16_t>(left)[1] += 1;
  comparison = Compared(left, right, options);
  EXPECT_EQ(comparison.mismatched(), 1);
  EXPECT_EQ(comparison.stats.extremes.ulp, 1u);
  comparison = Compared(left, right, {});
  EXPECT_EQ(comparison.difference, Difference::kDtype);
  // Nor a narrower one.
  comparison = Compared(right, left, {.judgment = Judgment::kParity});
  EXPECT_EQ(comparison.difference, Difference::kDtype);
}

TEST(Comparison, CleanRunsSayHowMuchWasCompared) {
  const std::vector<double> x = Normals(100000, 3);
  const ParityTensor tensor = TensorOf(DType::kF16, {100, 1000}, x);
  const Comparison comparison = Compared(tensor, tensor);
  EXPECT_TRUE(comparison.passed);
  EXPECT_EQ(comparison.stats.compared, 100000);
  EXPECT_EQ(comparison.stats.counts[compare::kUlp], 100000);
  EXPECT_EQ(comparison.mismatched(), 0);
  EXPECT_EQ(comparison.magnitude.elements, 100000);
  EXPECT_EQ(comparison.magnitude.cosine, 1);
  EXPECT_EQ(comparison.magnitude.max_abs, 0);
  EXPECT_GT(comparison.magnitude.max_abs_right, 3);
  EXPECT_EQ(comparison.row_stats.mismatched, 0);
  EXPECT_FALSE(comparison.first_mismatch.has_value());
}

TEST(Comparison, MagnitudesAreThoseOfTheirNames) {
  const Comparison comparison =
      Compared(Floats({2, 2}, {1.5f, -2, 0, 4}), Floats({2, 2}, {1, -2, 0.5f, 3}));
  const server::ErrorMagnitude& magnitude = comparison.magnitude;
  EXPECT_EQ(magnitude.max_abs, 1);
  EXPECT_EQ(magnitude.max_rel, 1);
  EXPECT_EQ(magnitude.max_abs_over_max_right, 1.0 / 3);
  EXPECT_EQ(magnitude.mean_abs, 0.5);
  EXPECT_EQ(magnitude.signed_mean, 0.25);
  EXPECT_EQ(magnitude.magnitude_mean, 0.25);
  EXPECT_EQ(magnitude.root_mean_square, std::sqrt(1.5 / 4));
  EXPECT_NEAR(magnitude.cosine, (1.5 + 4 + 12) / std::sqrt(22.25 * 14.25), 1e-15);
  // About the means 0.875 and 0.625.
  EXPECT_NEAR(magnitude.pearson,
              (17.5 - 4 * 0.875 * 0.625) /
                  std::sqrt((22.25 - 4 * 0.875 * 0.875) * (14.25 - 4 * 0.625 * 0.625)),
              1e-14);
}

// Squares of FP64 values may be beyond FP64: what is made of them is not known, and no guess.
TEST(Comparison, SquaresBeyondTheRangeGiveNoFigure) {
  for (const double scale : {1e-200, 1e-170, 1e170, 1e200}) {
    std::vector<double> x = Normals(20000, 3, scale), opposite = x;
    for (double& value : opposite) value = -value;
    const Comparison comparison = Compared(TensorOf(DType::kF64, {200, 100}, x.data()),
                                           TensorOf(DType::kF64, {200, 100}, opposite.data()));
    const server::ErrorMagnitude& magnitude = comparison.magnitude;
    EXPECT_TRUE(std::isnan(magnitude.cosine)) << scale;
    EXPECT_TRUE(std::isnan(magnitude.pearson)) << scale;
    EXPECT_TRUE(std::isnan(magnitude.root_mean_square)) << scale;
    EXPECT_TRUE(std::isnan(magnitude.root_mean_square_right)) << scale;
    EXPECT_EQ(magnitude.max_abs, 2 * magnitude.max_abs_right) << scale;
    EXPECT_GT(magnitude.mean_abs, 0.5 * scale) << scale;
    EXPECT_EQ(comparison.triage.triage, server::TriageClass::kUnclassified) << scale;
  }
  // One side alone may be zero.
  const std::vector<double> zeros(4), ones(4, 1.0);
  const Comparison comparison =
      Compared(TensorOf(DType::kF64, {4}, zeros.data()), TensorOf(DType::kF64, {4}, ones.data()));
  EXPECT_EQ(comparison.magnitude.cosine, 0);
  EXPECT_EQ(comparison.magnitude.root_mean_square, 1);
}

TEST(Comparison, CosineAndPearsonStayInTheirRange) {
  // Beside a mean of 10^7 standard deviations the sums of squares know no correlation.
  struct Case {
    double mean;
    bool known;
  } const cases[] = {{0, true}, {1e2, true}, {1e4, true}, {1e7, false}, {1e9, false}};
  const std::vector<double> noise = Normals(20000, 7), more = Normals(20000, 8);
  for (const Case& c : cases) {
    std::vector<double> x, y;
    double left = 0, right = 0, product = 0;
    for (size_t i = 0; i < noise.size(); ++i) {
      x.push_back(c.mean + noise[i]);
      y.push_back(c.mean + noise[i] + 0.5 * more[i]);
      left += noise[i] * noise[i];
      right += (noise[i] + 0.5 * more[i]) * (noise[i] + 0.5 * more[i]);
      product += noise[i] * (noise[i] + 0.5 * more[i]);
    }
    const server::ErrorMagnitude magnitude =
        Compared(TensorOf(DType::kF64, {20000}, x.data()), TensorOf(DType::kF64, {20000}, y.data()))
            .magnitude;
    EXPECT_LE(std::fabs(magnitude.cosine), 1) << c.mean;
    EXPECT_EQ(!std::isnan(magnitude.pearson), c.known) << c.mean << ": " << magnitude.pearson;
    if (!c.known) continue;
    // About means that are nearly 0.
    EXPECT_NEAR(magnitude.pearson, product / std::sqrt(left * right), 1e-3) << c.mean;
  }
  const std::vector<float> tenths(4097, 123.456f), others(4097, 123.457f);
  const server::ErrorMagnitude constant = Compared(TensorOf(DType::kF32, {4097}, tenths.data()),
                                                   TensorOf(DType::kF32, {4097}, others.data()))
                                              .magnitude;
  EXPECT_EQ(constant.cosine, 1);
  EXPECT_TRUE(std::isnan(constant.pearson));
}

TEST(Comparison, RefusesOptionsThatSayNothing) {
  const ParityTensor tensor = Floats({2}, {1, 2});
  const std::vector<double> doubles = {1, 2};
  const ParityTensor wide = TensorOf(DType::kF64, {2}, doubles.data());
  const server::ToleranceRow row = {OpClass::kElementwise, false};
  struct Case {
    ParityTensor left;
    ComparisonOptions options;
    Reason reason;
    const char* field;
  } const cases[] = {
      {tensor, {.judgment = Judgment::kAccuracy}, Reason::kUnknownOption, "options.tolerance"},
      {tensor,
       {.judgment = Judgment::kInvariance, .tolerance = row},
       Reason::kUnknownOption,
       "options.tolerance"},
      {tensor, {.axes = {"a", "b"}}, Reason::kShapeMismatch, "options.axes"},
      {wide,
       {.judgment = Judgment::kAccuracy, .tolerance = row},
       Reason::kDtypeNotAllowed,
       "left.dtype"},
  };
  for (const Case& c : cases) {
    const auto comparison = server::CompareTensors(c.left, c.left, c.options, kContext, {});
    const auto detail = GetErrorDetail(comparison.status());
    ASSERT_TRUE(detail.has_value());
    EXPECT_EQ(detail->reason, c.reason);
    EXPECT_EQ(detail->field, c.field);
  }
}

TEST(Comparison, StopsWhenNobodyWaits) {
  const ParityTensor tensor = Floats({2}, {1, 2});
  server::Interrupt interrupt;
  interrupt.deadline = std::chrono::steady_clock::time_point::min();
  EXPECT_EQ(server::CompareTensors(tensor, tensor, {}, kContext, interrupt).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  interrupt = {.cancelled = [] { return true; }};
  EXPECT_EQ(server::CompareTensors(tensor, tensor, {}, kContext, interrupt).status().code(),
            absl::StatusCode::kCancelled);
}

TEST(Comparison, ADigestStandsForATensor) {
  const ParityTensor tensor = Floats({2, 3}, {1, 2, 3, 4, 5, 6});
  const std::string digest = server::DigestOf(tensor, {})->Text();
  auto comparison = server::CompareWithDigest(tensor, digest, {}, {});
  ASSERT_TRUE(comparison.ok());
  EXPECT_TRUE(comparison->passed);
  EXPECT_EQ(comparison->stats.compared, 6);
  std::string other = digest;
  other.back() = other.back() == '0' ? '1' : '0';
  comparison = server::CompareWithDigest(tensor, other, {}, {});
  ASSERT_TRUE(comparison.ok());
  EXPECT_FALSE(comparison->passed);
  EXPECT_EQ(comparison->right.digest->Text(), other);
  EXPECT_EQ(comparison->right.dtype, DType::kUnspecified);
  EXPECT_EQ(comparison->right.shape.rank(), 0);
  EXPECT_EQ(comparison->left.dtype, DType::kF32);
  for (const std::string& text :
       {digest.substr(1), digest + "0", digest.substr(0, 20), std::string("sha256:00")}) {
    EXPECT_EQ(GetErrorDetail(server::CompareWithDigest(tensor, text, {}, {}).status())->reason,
              Reason::kMalformedMessage)
        << text;
  }
}

}  // namespace
}  // namespace rlk::test
