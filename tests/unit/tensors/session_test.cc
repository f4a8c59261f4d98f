#include <set>
#include <thread>
#include <vector>

#include "server/sessions/session_table.h"
#include "tests/unit/tensors/store_harness.h"

namespace rlk::test {
namespace {

using server::Session;
using server::SessionTable;
using std::chrono::milliseconds;

struct Table {
  explicit Table(Limits limits = {})
      : table(
            limits, [this](const Session& session) { ended.push_back(session.id()); },
            TestClock::Now) {}
  std::vector<uint64_t> ended;
  SessionTable table;
};

TEST(SessionTest, IsFoundByItsTokenAlone) {
  Table t;
  const auto session = t.table.OpenLeased(0);
  ASSERT_TRUE(session.ok());
  const std::string token = (*session)->token();
  EXPECT_EQ(token.size(), 32u);
  EXPECT_EQ(token.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(*t.table.Find(token), *session);
  std::string other = token;
  other[31] = other[31] == '0' ? '1' : '0';
  for (const std::string& wrong : {std::string(), other, token + "0", token.substr(0, 31),
                                   std::string(100000, 'a'), std::string(32, '\0')}) {
    const auto found = t.table.Find(wrong);
    EXPECT_EQ(found.status().code(), absl::StatusCode::kUnauthenticated) << wrong.substr(0, 40);
    EXPECT_EQ(ReasonOf(found.status()), Reason::kUnauthenticated);
    // The error repeats no token.
    EXPECT_EQ(std::string(found.status().message()).find(token.substr(0, 8)), std::string::npos);
  }
}

TEST(SessionTest, TokensAreNeverTheSame) {
  Table t;
  std::set<std::string> tokens;
  std::set<uint64_t> ids;
  for (int i = 0; i < 500; ++i) {
    const auto session = t.table.OpenLeased(0);
    ASSERT_TRUE(session.ok());
    tokens.insert((*session)->token());
    ids.insert((*session)->id());
  }
  EXPECT_EQ(tokens.size(), 500u);
  EXPECT_EQ(ids.size(), 500u);
}

TEST(SessionTest, LivesWhileItIsUsedAndEndsWithItsLease) {
  Table t;
  const auto session = *t.table.OpenLeased(1000);
  for (int i = 0; i < 5; ++i) {
    TestClock::Advance(milliseconds(900));
    t.table.Sweep();
    ASSERT_TRUE(t.table.Find(session->token()).ok()) << i;
  }
  TestClock::Advance(milliseconds(1000));
  EXPECT_FALSE(t.table.Find(session->token()).ok());
  EXPECT_TRUE(t.ended.empty());
  t.table.Sweep();
  EXPECT_EQ(t.ended, std::vector<uint64_t>{session->id()});
  EXPECT_TRUE(session->ended());
  EXPECT_EQ(t.table.count(), 0);
  t.table.Sweep();
  t.table.End(session);
  EXPECT_EQ(t.ended.size(), 1u);
}

// Each piece of work ends at a time after the last use; the table looks there, and a lease later.
TEST(SessionTest, LivesWhileWorkForItGoesOn) {
  struct Case {
    const char* name;
    std::vector<bool> callers_gone;  // of works that begin together and end one after the other
    bool lives;                      // half a lease after the last one's end
  };
  const Case cases[] = {
      {"one", {false}, true},
      {"one whose caller has gone", {true}, false},
      {"two", {false, false}, true},
      {"the last caller has gone", {false, true}, false},
      {"the first caller has gone", {true, false}, true},
  };
  for (const Case& c : cases) {
    Table t;
    const auto session = *t.table.OpenLeased(1000);
    for (size_t i = 0; i < c.callers_gone.size(); ++i) session->BeginWork();
    for (const bool gone : c.callers_gone) {
      TestClock::Advance(milliseconds(10'000));
      t.table.Sweep();
      EXPECT_TRUE(t.ended.empty()) << c.name;
      session->EndWork(gone, TestClock::Now());
    }
    TestClock::Advance(milliseconds(500));
    EXPECT_EQ(!session->Expired(TestClock::Now()), c.lives) << c.name;
    TestClock::Advance(milliseconds(500));
    t.table.Sweep();
    EXPECT_EQ(t.ended.size(), 1u) << c.name;
  }
}

TEST(SessionTest, WorkDoesNotKeepASessionFromBeingEnded) {
  Table t;
  const auto session = *t.table.OpenLeased(1000);
  session->BeginWork();
  t.table.End(session);
  EXPECT_TRUE(session->ended());
  session->EndWork(false, TestClock::Now());
  EXPECT_FALSE(t.table.Find(session->token()).ok());
}

TEST(SessionTest, RenewChangesTheLease) {
  Table t;
  const auto session = *t.table.OpenLeased(1000);
  ASSERT_TRUE(t.table.Renew(*session, 50'000).ok());
  TestClock::Advance(milliseconds(49'999));
  ASSERT_TRUE(t.table.Find(session->token()).ok());
  ASSERT_TRUE(t.table.Renew(*session, 10).ok());
  TestClock::Advance(milliseconds(10));
  EXPECT_FALSE(t.table.Find(session->token()).ok());
}

TEST(SessionTest, AHeldSessionHasNoLease) {
  Table t;
  const auto session = *t.table.OpenHeld(1000);
  TestClock::Advance(std::chrono::hours(1000));
  t.table.Sweep();
  EXPECT_TRUE(t.table.Find(session->token()).ok());
  t.table.End(session);
  EXPECT_FALSE(t.table.Find(session->token()).ok());
}

TEST(SessionTest, RefusesLeasesAndSessionsAboveTheirLimits) {
  Limits limits;
  limits.sessions_max = 2;
  limits.session_lease_ms_max = 5000;
  Table t(limits);
  for (const int64_t lease : {int64_t{-1}, int64_t{5001}, INT64_MAX, INT64_MIN}) {
    const auto refused = t.table.OpenLeased(lease);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << lease;
    EXPECT_EQ(ReasonOf(refused.status()), Reason::kLimitExceeded);
  }
  const auto first = *t.table.OpenLeased(5000);
  ASSERT_TRUE(t.table.OpenHeld(1).ok());
  EXPECT_FALSE(t.table.Renew(*first, 5001).ok());
  const auto third = t.table.OpenLeased(0);
  EXPECT_EQ(third.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(third.status()), Reason::kSessionsExhausted);
  EXPECT_EQ(GetErrorDetail(third.status())->field, "sessions_max");
  EXPECT_GT(GetErrorDetail(third.status())->retry_after_ms, 0);
  t.table.End(first);
  EXPECT_TRUE(t.table.OpenLeased(0).ok());
}

TEST(SessionTest, StopsWhatRunsInIt) {
  Table t;
  const auto session = *t.table.OpenLeased(0);
  int stopped = 0, forgotten = 0;
  session->AtEnd([&] { ++stopped; });
  const uint64_t number = session->AtEnd([&] { ++forgotten; });
  session->Forget(number);
  t.table.End(session);
  EXPECT_EQ(stopped, 1);
  EXPECT_EQ(forgotten, 0);
  session->AtEnd([&] { ++stopped; });
  EXPECT_EQ(stopped, 2) << "what begins after the end is stopped at once";
}

TEST(SessionTest, CountsItsCalls) {
  Table t;
  const auto session = *t.table.OpenLeased(0);
  EXPECT_TRUE(session->EnterCall(2));
  EXPECT_TRUE(session->EnterCall(2));
  EXPECT_FALSE(session->EnterCall(2));
  session->LeaveCall();
  EXPECT_TRUE(session->EnterCall(2));
}

TEST(SessionTest, TheTableEndsItsSessions) {
  std::shared_ptr<Session> session;
  int ended = 0;
  {
    SessionTable table({}, [&](const Session&) { ++ended; });
    session = *table.OpenLeased(0);
  }
  EXPECT_TRUE(session->ended());
  EXPECT_EQ(ended, 1);
}

TEST(SessionTest, ManyThreadsOpenFindAndEnd) {
  std::atomic<int> ended{0};
  SessionTable table({}, [&](const Session&) { ++ended; });
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&table] {
      for (int n = 0; n < 200; ++n) {
        const auto session = table.OpenLeased(0);
        ASSERT_TRUE(session.ok());
        ASSERT_TRUE(table.Find((*session)->token()).ok());
        table.Sweep();
        table.End(*session);
        ASSERT_FALSE(table.Find((*session)->token()).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ended, 800);
  EXPECT_EQ(table.count(), 0);
}

}  // namespace
}  // namespace rlk::test
