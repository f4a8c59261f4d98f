#include "server/engine/admission.h"

#include "gtest/gtest.h"
#include "kernels/core/status.h"

namespace rlk::server {
namespace {

Limits SmallLimits() {
  Limits limits;
  limits.queue_calls_max = 3;
  limits.queue_bytes_max = 100;
  return limits;
}

TEST(Admission, RefusesTheCallThatExceedsTheCount) {
  Admission admission(SmallLimits(), 1);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(admission.Admit(1).ok());
  const absl::Status refused = admission.Admit(1);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  const auto detail = GetErrorDetail(refused);
  EXPECT_EQ(detail->reason, Reason::kQueueFull);
  EXPECT_EQ(detail->allowed, "at most 3 (queue_calls_max)");
  EXPECT_GE(detail->retry_after_ms, 1);
  EXPECT_LE(detail->retry_after_ms, 1000);
  admission.Leave(1);
  EXPECT_TRUE(admission.Admit(1).ok());
}

TEST(Admission, RefusesTheCallThatExceedsTheBytes) {
  Admission admission(SmallLimits(), 1);
  EXPECT_TRUE(admission.Admit(60).ok());
  EXPECT_TRUE(admission.Admit(40).ok());
  const absl::Status refused = admission.Admit(1);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetErrorDetail(refused)->reason, Reason::kBytesExhausted);
  EXPECT_EQ(admission.bytes(), 100);
  admission.Leave(60);
  EXPECT_TRUE(admission.Admit(60).ok());
}

TEST(Admission, LetsOneLargeCallInAlone) {
  Admission admission(SmallLimits(), 1);
  EXPECT_TRUE(admission.Admit(1000).ok());
  EXPECT_EQ(GetErrorDetail(admission.Admit(0))->reason, Reason::kBytesExhausted);
  admission.Leave(1000);
  EXPECT_TRUE(admission.Admit(0).ok());
  EXPECT_FALSE(admission.Admit(1000).ok());
}

TEST(Admission, HintGrowsWithTheQueueAndIsBounded) {
  Limits limits;
  limits.queue_calls_max = 1 << 20;
  Admission admission(limits, 2);
  for (int i = 0; i < 100; ++i) admission.Observe(10'000'000);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(admission.Admit(1).ok());
  const int64_t few = admission.retry_after_ms();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(admission.Admit(1).ok());
  EXPECT_GT(admission.retry_after_ms(), few);
  for (int i = 0; i < 100'000; ++i) ASSERT_TRUE(admission.Admit(1).ok());
  EXPECT_EQ(admission.retry_after_ms(), 1000);
}

}  // namespace
}  // namespace rlk::server
