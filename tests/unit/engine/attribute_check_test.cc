#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/core/status.h"
#include "server/engine/contract_check.h"
#include "tests/support/toy_ops.h"

namespace rlk::server {
namespace {

using test::Rich;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class AttributeCheck : public testing::Test {
 protected:
  absl::StatusOr<std::vector<AttributeValue>> Check(std::vector<Call::GivenAttribute> given,
                                                    DType a = DType::kBF16) const {
    bool required = false;
    for (const auto& attribute : given) required = required || attribute.spec == Rich::kRequired;
    if (!required) given.push_back({.spec = Rich::kRequired, .number = 1});
    const MethodSignature& signature = registry_->Find("toy.rich")->signature;
    return CheckAttributes(signature, given, std::vector<DType>{a, {}, {}, {}, {}});
  }

  std::unique_ptr<Registry> registry_ = test::MakeToyRegistry();
};

TEST_F(AttributeCheck, AppliesDefaults) {
  const auto values = Check({});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ((*values)[Rich::kFactor].number, 30);
  EXPECT_EQ((*values)[Rich::kCount].integer, 8);
  EXPECT_EQ((*values)[Rich::kFlag].integer, 0);
  EXPECT_EQ((*values)[Rich::kDType].integer, static_cast<int64_t>(DType::kF32));
  EXPECT_EQ((*values)[Rich::kActivation].integer, 1);
  EXPECT_EQ((*values)[Rich::kWide].number, 0);
}

TEST_F(AttributeCheck, ADtypeDefaultsToThatOfAnInputWhereTheSignatureSaysSo) {
  MethodSignature signature = registry_->Find("toy.rich")->signature;
  signature.attributes[Rich::kDType].default_same_dtype = true;
  const DType inputs[5] = {DType::kBF16};
  const auto values = CheckAttributes(signature, {{.spec = Rich::kRequired, .number = 1}}, inputs);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ((*values)[Rich::kDType].integer, static_cast<int64_t>(DType::kBF16));
}

TEST_F(AttributeCheck, ConvertsOnceToTheArithmeticsType) {
  const auto values =
      Check({{.spec = Rich::kFactor, .number = 0.1}, {.spec = Rich::kWide, .number = 0.1}});
  ASSERT_TRUE(values.ok());
  EXPECT_EQ((*values)[Rich::kFactor].number, static_cast<double>(0.1f));
  EXPECT_EQ((*values)[Rich::kWide].number, 0.1);
}

TEST_F(AttributeCheck, TakesTheLastOfSeveralValues) {
  const auto values =
      Check({{.spec = Rich::kFactor, .number = -1}, {.spec = Rich::kFactor, .number = 4}});
  ASSERT_TRUE(values.ok());
  EXPECT_EQ((*values)[Rich::kFactor].number, 4);
}

TEST_F(AttributeCheck, NumbersAtTheEdges) {
  struct Case {
    int32_t spec;
    double number;
    bool allowed;
  };
  const Case kCases[] = {
      {Rich::kFactor, 1e-45, true},         // the smallest FP32
      {Rich::kFactor, 1e-46, false},        // 0 after the conversion
      {Rich::kFactor, 3.4028234e38, true},  // the largest
      {Rich::kFactor, 1e39, false},         // infinite after the conversion
      {Rich::kFactor, 0.0, false},
      {Rich::kFactor, -0.0, false},
      {Rich::kFactor, -3, false},
      {Rich::kFactor, kInfinity, false},
      {Rich::kFactor, -kInfinity, false},
      {Rich::kFactor, kNan, false},
      {Rich::kRequired, 9.5, true},
      {Rich::kRequired, 10, false},
      {Rich::kRequired, 9.9999999999, false},  // 10 after the conversion
      {Rich::kRequired, -kInfinity, true},     // not declared finite
      {Rich::kRequired, kNan, false},          // below no bound
      {Rich::kWide, 1e39, true},
      {Rich::kWide, 1e-46, true},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::Message() << "attribute " << c.spec << " = " << c.number);
    const auto values = Check({{.spec = c.spec, .number = c.number}});
    EXPECT_EQ(values.ok(), c.allowed);
    if (values.ok()) continue;
    const auto detail = GetErrorDetail(values.status());
    EXPECT_EQ(values.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(detail->reason, Reason::kAttributeOutOfRange);
    EXPECT_EQ(detail->field, c.spec == Rich::kFactor ? "factor" : "required");
    EXPECT_FALSE(detail->value.empty());
    EXPECT_FALSE(detail->allowed.empty());
  }
}

TEST_F(AttributeCheck, TheErrorNamesValueAndRange) {
  const auto values = Check({{.spec = Rich::kFactor, .number = 1e39}});
  const auto detail = GetErrorDetail(values.status());
  EXPECT_EQ(detail->value, "1e+39");
  EXPECT_EQ(detail->allowed, "finite, > 0; checked after rounding to FP32");
}

TEST_F(AttributeCheck, IntegersBooleansDTypesEnums) {
  struct Case {
    int32_t spec;
    int64_t integer;
    std::optional<Reason> refused;
    const char* allowed;
  };
  const auto number = [](DType dtype) { return static_cast<int64_t>(dtype); };
  const Case kCases[] = {
      {Rich::kCount, 64, {}, ""},
      {Rich::kCount, 72, Reason::kAttributeOutOfRange, ">= 8, <= 64, a multiple of 8"},
      {Rich::kCount, 0, Reason::kAttributeOutOfRange, ">= 8"},
      {Rich::kCount, 9, Reason::kAttributeOutOfRange, "a multiple of 8"},
      {Rich::kCount, INT64_MIN, Reason::kAttributeOutOfRange, ""},
      {Rich::kCount, INT64_MAX, Reason::kAttributeOutOfRange, ""},
      {Rich::kFlag, 1, {}, ""},
      {Rich::kFlag, 2, Reason::kAttributeOutOfRange, "false, true"},
      {Rich::kDType, number(DType::kF32), {}, ""},
      {Rich::kDType, number(DType::kBF16), {}, ""},
      {Rich::kDType, number(DType::kF16), Reason::kDtypeNotAllowed, "F32, BF16"},
      {Rich::kDType, number(DType::kF64), Reason::kDtypeNotAllowed, "F32, BF16"},
      {Rich::kDType, 0, Reason::kDtypeNotAllowed, "F32, BF16"},
      {Rich::kDType, 99, Reason::kDtypeNotAllowed, "F32, BF16"},
      {Rich::kDType, -1, Reason::kDtypeNotAllowed, "F32, BF16"},
      {Rich::kActivation, 2, {}, ""},
      {Rich::kActivation, 0, Reason::kAttributeOutOfRange, "none, silu"},
      {Rich::kActivation, 3, Reason::kAttributeOutOfRange, "none, silu"},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::Message() << "attribute " << c.spec << " = " << c.integer);
    const auto values = Check({{.spec = c.spec, .integer = c.integer}});
    EXPECT_EQ(values.ok(), !c.refused.has_value());
    if (values.ok()) {
      EXPECT_EQ((*values)[static_cast<size_t>(c.spec)].integer, c.integer);
      continue;
    }
    const auto detail = GetErrorDetail(values.status());
    EXPECT_EQ(detail->reason, *c.refused);
    EXPECT_THAT(detail->allowed, testing::HasSubstr(c.allowed));
  }
}

TEST_F(AttributeCheck, RefusesAnAbsentRequiredAttribute) {
  const MethodSignature& signature = registry_->Find("toy.rich")->signature;
  const auto values =
      CheckAttributes(signature, {}, std::vector<DType>{DType::kF32, {}, {}, {}, {}});
  const auto detail = GetErrorDetail(values.status());
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->field, "required");
  EXPECT_EQ(detail->value, "absent");
}

}  // namespace
}  // namespace rlk::server
