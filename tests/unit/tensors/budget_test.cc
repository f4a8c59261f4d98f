#include "server/tensors/budget.h"

#include <random>

#include "tests/unit/tensors/store_harness.h"

namespace rlk::test {
namespace {

using server::Budget;

Limits SmallLimits() {
  Limits limits;
  limits.session_resident_bytes_max = 100;
  limits.resident_bytes_max = 150;
  limits.session_tensors_max = 3;
  return limits;
}

TEST(BudgetTest, HoldsEachBoundAndNamesIt) {
  Budget budget(SmallLimits());
  auto first = budget.Take(1, 60);
  ASSERT_TRUE(first.ok());
  struct Case {
    const char* name;
    uint64_t owner;
    int64_t bytes;
    absl::StatusCode code;
    Reason reason;
    const char* limit;
  } const cases[] = {
      {"never", 1, 101, absl::StatusCode::kInvalidArgument, Reason::kLimitExceeded,
       "session_resident_bytes_max"},
      {"never, of any size", 1, INT64_MAX, absl::StatusCode::kInvalidArgument,
       Reason::kLimitExceeded, "session_resident_bytes_max"},
      {"not now, of its own", 1, 41, absl::StatusCode::kResourceExhausted, Reason::kBytesExhausted,
       "session_resident_bytes_max"},
      {"not now, of all", 2, 91, absl::StatusCode::kResourceExhausted, Reason::kBytesExhausted,
       "resident_bytes_max"},
  };
  for (const Case& c : cases) {
    const auto refused = budget.Take(c.owner, c.bytes);
    EXPECT_EQ(refused.status().code(), c.code) << c.name;
    EXPECT_EQ(ReasonOf(refused.status()), c.reason) << c.name;
    const auto detail = GetErrorDetail(refused.status());
    ASSERT_TRUE(detail.has_value()) << c.name;
    EXPECT_EQ(detail->field, c.limit) << c.name;
    EXPECT_NE(detail->allowed.find(c.limit), std::string::npos) << detail->allowed;
    EXPECT_EQ(detail->retry_after_ms > 0, c.code == absl::StatusCode::kResourceExhausted) << c.name;
  }
  EXPECT_EQ(budget.Of(1).bytes, 60);
  EXPECT_EQ(budget.Of(2).tensors, 0);
}

TEST(BudgetTest, HoldsTheNumberOfTensors) {
  Budget budget(SmallLimits());
  std::vector<std::unique_ptr<Budget::Charge>> charges;
  for (int i = 0; i < 3; ++i) charges.push_back(*budget.Take(7, 0));
  const auto refused = GetErrorDetail(budget.Take(7, 0).status());
  EXPECT_EQ(refused->reason, Reason::kTensorsExhausted);
  EXPECT_EQ(refused->field, "session_tensors_max");
  EXPECT_TRUE(budget.Take(8, 0).ok());
  charges.pop_back();
  EXPECT_TRUE(budget.Take(7, 0).ok());
}

TEST(BudgetTest, NeverExceedsItsBoundsAndComesBackToZero) {
  constexpr uint32_t kSeed = 20;
  std::mt19937 random(kSeed);
  Limits limits = SmallLimits();
  limits.session_tensors_max = 1000;
  Budget budget(limits);
  std::vector<std::unique_ptr<Budget::Charge>> charges;
  for (int i = 0; i < 20000; ++i) {
    if (random() % 2 == 0) {
      auto charge = budget.Take(random() % 3, static_cast<int64_t>(random() % 40));
      if (charge.ok()) charges.push_back(*std::move(charge));
    } else if (!charges.empty()) {
      charges.erase(charges.begin() + static_cast<std::ptrdiff_t>(random() % charges.size()));
    }
    ASSERT_LE(budget.Total().bytes, 150);
    int64_t sum = 0;
    for (uint64_t owner = 0; owner < 3; ++owner) {
      ASSERT_LE(budget.Of(owner).bytes, 100);
      sum += budget.Of(owner).bytes;
    }
    ASSERT_EQ(sum, budget.Total().bytes);
    ASSERT_EQ(static_cast<int64_t>(charges.size()), budget.Total().tensors);
  }
  charges.clear();
  EXPECT_EQ(budget.Total().bytes, 0);
  EXPECT_EQ(budget.Total().tensors, 0);
}

}  // namespace
}  // namespace rlk::test
