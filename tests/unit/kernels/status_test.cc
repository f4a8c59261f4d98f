#include "kernels/core/status.h"

#include <set>

#include "gtest/gtest.h"

namespace rlk {
namespace {

TEST(Status, EveryReasonHasItsOwnName) {
  std::set<std::string_view> names;
  for (int i = 0; i < kReasonCount; ++i) names.insert(ReasonName(static_cast<Reason>(i)));
  EXPECT_EQ(names.size(), static_cast<size_t>(kReasonCount));
  EXPECT_EQ(ReasonName(Reason::kDtypeNotAllowed), "DTYPE_NOT_ALLOWED");
  EXPECT_EQ(ReasonName(Reason::kClaimTooLow), "CLAIM_TOO_LOW");
  EXPECT_EQ(ReasonName(Reason::kInternal), "INTERNAL");
  EXPECT_EQ(ReasonName(static_cast<Reason>(250)), "UNKNOWN");
}

TEST(Status, SaysFieldValueAndAllowedSet) {
  const absl::Status status = InvalidArgument(Reason::kDtypeNotAllowed, "x", "F64",
                                              "F32, F16, BF16", "dtype F64 is not allowed");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "x: dtype F64 is not allowed; allowed: F32, F16, BF16");
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->reason, Reason::kDtypeNotAllowed);
  EXPECT_EQ(detail->field, "x");
  EXPECT_EQ(detail->value, "F64");
  EXPECT_EQ(detail->allowed, "F32, F16, BF16");
  EXPECT_EQ(detail->retry_after_ms, 0);
}

TEST(Status, AddsAValueThatTheMessageDoesNotShow) {
  EXPECT_EQ(InvalidArgument(Reason::kUnknownOption, "f", "7", "", "is odd").message(),
            "f: is odd, got 7");
}

TEST(Status, TakesNoPartOfAWordForTheValue) {
  const struct {
    const char *value, *message, *expected;
  } cases[] = {
      {"3", "contract h3-v1 has one part", "f: contract h3-v1 has one part, got 3"},
      {"1", "whole chunks of 128 rows", "f: whole chunks of 128 rows, got 1"},
      {"1", "above 1.5", "f: above 1.5, got 1"},
      {"F3", "F32 and xF3", "f: F32 and xF3, got F3"},
      {"3", "h3 has 3 parts", "f: h3 has 3 parts"},
      {"3", "3", "f: 3"},
      {"", "no value", "f: no value"},
      {"'a b'", "'a b' is not known", "f: 'a b' is not known"},
  };
  for (const auto& [value, message, expected] : cases) {
    EXPECT_EQ(InvalidArgument(Reason::kUnknownOption, "f", value, "", message).message(), expected);
  }
}

TEST(Status, CarriesTheRetryDelay) {
  const absl::Status status =
      MakeError(absl::StatusCode::kResourceExhausted, {Reason::kQueueFull, "", "", "", 25}, "full");
  EXPECT_EQ(GetErrorDetail(status)->retry_after_ms, 25);
}

TEST(Status, CutsLongValuesInMessageAndPayload) {
  for (const std::string& value : {std::string(129, 'v'), std::string(1 << 20, 'w')}) {
    const absl::Status status = InvalidArgument(Reason::kUnknownContract, "options.contract", value,
                                                "a, b", "contract " + value + " is not known");
    const std::optional<ErrorDetail> detail = GetErrorDetail(status);
    ASSERT_TRUE(detail.has_value());
    EXPECT_EQ(detail->value.size(), 128u);
    EXPECT_EQ(detail->value.substr(125), "...");
    EXPECT_LT(status.message().size(), 300u);
    EXPECT_NE(status.message().find(detail->value), absl::string_view::npos);
  }
  const std::string fits(128, 'v');
  EXPECT_EQ(GetErrorDetail(InvalidArgument(Reason::kUnknown, "", fits, "", ""))->value, fits);
}

TEST(Status, NeverCutsThroughAUtf8Sequence) {
  for (int pad = 0; pad < 4; ++pad) {
    std::string value(static_cast<size_t>(pad), 'a');
    while (value.size() < 200) value += "\xe2\x82\xac";  // a three-byte character
    const std::string cut =
        GetErrorDetail(InvalidArgument(Reason::kUnknown, "", value, "", ""))->value;
    EXPECT_LE(cut.size(), 128u);
    EXPECT_EQ((cut.size() - 3 - static_cast<size_t>(pad)) % 3, 0u);
  }
}

TEST(Status, OthersHaveNoDetail) {
  EXPECT_FALSE(GetErrorDetail(absl::OkStatus()).has_value());
  EXPECT_FALSE(GetErrorDetail(absl::InternalError("plain")).has_value());
  EXPECT_TRUE(MakeError(absl::StatusCode::kOk, {}, "").ok());
}

}  // namespace
}  // namespace rlk
