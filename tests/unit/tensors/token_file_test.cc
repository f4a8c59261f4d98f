// The file of bearer tokens, and the accounts that it makes.
#include "server/sessions/token_file.h"

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "server/sessions/session_table.h"
#include "tests/unit/tensors/store_harness.h"

namespace rlk::server {
namespace {

using test::ReasonOf;

// SHA-256 of "a" and of "b".
constexpr char kA[] = "sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb";
constexpr char kB[] = "sha256:3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d";
constexpr char kEmpty[] = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

TEST(TokenFileTest, ReadsNamesHashesAndSettings) {
  AccountTable accounts{Limits()};
  const auto entries = ParseTokens(
      absl::StrCat("# comment\n\r\n  one ", kA, "\t resident_bytes_max=0 sessions_max=3\r\none ",
                   kB, " expires=2030-01-02T03:04:05+01:00"),
      accounts);
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 2u);
  EXPECT_EQ((*entries)[0].account, (*entries)[1].account);
  EXPECT_EQ((*entries)[0].account->name(), "one");
  EXPECT_EQ((*entries)[0].account->sessions_max(), 3);
  EXPECT_EQ((*entries)[0].account->share().resident_bytes_max, 0);
  EXPECT_EQ((*entries)[0].account->share().tensors_max, Limits().account_tensors_max);
  EXPECT_EQ((*entries)[0].expires, absl::InfiniteFuture());
  EXPECT_EQ(absl::ToUnixSeconds((*entries)[1].expires), 1893549845);
}

TEST(TokenFileTest, EveryMistakeNamesItsLineAndRepeatsNothing) {
  const std::string secret = "hunter2-hunter2";
  const struct {
    const char* name;
    std::string line;
  } cases[] = {
      {"a name alone", secret},
      {"a token for a hash", "one " + secret},
      {"a hash without its kind", std::string("one ") + (kA + 7)},
      {"a short hash", std::string("one ") + std::string(kA).substr(0, 70)},
      {"a long hash", std::string("one ") + kA + "0"},
      {"no hex", std::string("one ") + std::string(kA).substr(0, 70) + "+f"},
      {"another hash", std::string("one md5:") + (kA + 7)},
      {"the empty token", std::string("one ") + kEmpty},
      {"a bad name", std::string("o:ne ") + kA},
      {"a long name", std::string(65, 'n') + " " + kA},
      {"an unknown setting", std::string("one ") + kA + " " + secret + "=1"},
      {"no number", std::string("one ") + kA + " sessions_max=" + secret},
      {"below zero", std::string("one ") + kA + " sessions_max=-1"},
      {"a setting twice", std::string("one ") + kA + " tensors_max=1 tensors_max=1"},
      {"no time", std::string("one ") + kA + " expires=" + secret},
      {"a date", std::string("one ") + kA + " expires=2030-01-02"},
  };
  for (const auto& c : cases) {
    AccountTable accounts{Limits()};
    const auto entries = ParseTokens(absl::StrCat("two ", kB, "\n", c.line, "\n"), accounts);
    ASSERT_EQ(entries.status().code(), absl::StatusCode::kInvalidArgument) << c.name;
    const std::string text = entries.status().ToString();
    EXPECT_THAT(text, testing::HasSubstr("line 2")) << c.name;
    EXPECT_THAT(text, testing::Not(testing::HasSubstr(secret))) << c.name;
    EXPECT_THAT(text, testing::Not(testing::HasSubstr(kA + 7))) << c.name;
  }
  AccountTable accounts{Limits()};
  EXPECT_FALSE(ParseTokens("", accounts).ok());
  EXPECT_FALSE(ParseTokens("# nobody\n", accounts).ok());
  EXPECT_FALSE(ParseTokens(absl::StrCat("one ", kA, "\ntwo ", kA), accounts).ok());
  EXPECT_FALSE(
      ParseTokens(absl::StrCat("one ", kA, " tensors_max=1\none ", kB, " tensors_max=2"), accounts)
          .ok());
  std::string many;
  for (size_t i = 0; i <= kTokensMax; ++i) {
    char hash[72];
    std::snprintf(hash, sizeof(hash), "sha256:%064zx", i);
    absl::StrAppend(&many, "one ", hash, "\n");
  }
  EXPECT_THAT(ParseTokens(many, accounts).status().ToString(), testing::HasSubstr("line 257"));
}

TEST(TokenFileTest, AMistakeChangesNoAccount) {
  AccountTable accounts{Limits()};
  ASSERT_TRUE(ParseTokens(absl::StrCat("one ", kA, " sessions_max=3"), accounts).ok());
  EXPECT_FALSE(
      ParseTokens(absl::StrCat("one ", kA, " sessions_max=9\ntwo ", kB, "0"), accounts).ok());
  EXPECT_EQ(accounts.Get("one")->sessions_max(), 3);
}

TEST(AccountTest, NamesBeyondTheBoundShareOneAccount) {
  AccountTable accounts{Limits()};
  const auto first = accounts.Get("0");
  for (size_t i = 1; i < AccountTable::kAccountsMax; ++i) accounts.Get(std::to_string(i));
  EXPECT_EQ(accounts.Get("0"), first);
  EXPECT_EQ(accounts.Get("x"), accounts.Get("y"));
  EXPECT_NE(accounts.Get("x"), first);
  EXPECT_NE(accounts.Get("x")->id(), first->id());
}

TEST(AccountTest, ASessionIsItsAccountsAlone) {
  AccountTable accounts{Limits()};
  const auto one = accounts.Get("one"), two = accounts.Get("two");
  SessionTable table({}, [](const Session&) {});
  int unknown = 0;
  table.SetOnUnknown([&unknown] { ++unknown; });
  const auto of_one = *table.OpenLeased(0, one);
  const auto of_nobody = *table.OpenLeased(0);
  const struct {
    const Session* session;
    const Account* account;
    bool found;
  } cases[] = {{of_one.get(), one.get(), true},
               {of_one.get(), two.get(), false},
               {of_one.get(), nullptr, false},
               {of_nobody.get(), nullptr, true},
               {of_nobody.get(), one.get(), false}};
  for (const auto& c : cases) {
    const int before = unknown;
    const auto found = table.Find(c.session->token(), c.account);
    EXPECT_EQ(found.ok(), c.found);
    EXPECT_EQ(unknown - before, c.found ? 0 : 1);
    if (c.found) continue;
    EXPECT_EQ(ReasonOf(found.status()), Reason::kUnauthenticated);
  }
}

TEST(AccountTest, ARevokedAccountsSessionsEnd) {
  AccountTable accounts{Limits()};
  const auto one = accounts.Get("one"), two = accounts.Get("two");
  AccountBudget budget;
  budget.sessions_max = 1;
  one->SetBudget(budget);
  std::vector<uint64_t> ended;
  SessionTable table({}, [&ended](const Session& session) { ended.push_back(session.id()); });
  const auto first = *table.OpenLeased(0, one);
  const auto other = *table.OpenLeased(0, two);
  const auto refused = GetErrorDetail(table.OpenLeased(0, one).status());
  EXPECT_EQ(refused->reason, Reason::kSessionsExhausted);
  EXPECT_EQ(refused->field, "account_sessions_max");
  one->SetRevoked(true);
  table.Sweep();
  EXPECT_EQ(ended, std::vector<uint64_t>{first->id()});
  EXPECT_TRUE(table.Find(other->token(), two.get()).ok());
  one->SetRevoked(false);
  EXPECT_TRUE(table.OpenLeased(0, one).ok()) << "what ended counts no more";
}

TEST(AccountTest, ATokenOfAnotherServerIsKnown) {
  const std::string here(32, 'a'), there(32, 'b');
  SessionTable table(
      {}, [](const Session&) {}, nullptr, here);
  SessionTable other(
      {}, [](const Session&) {}, nullptr, there);
  const std::string token = (*other.OpenLeased(0))->token();
  EXPECT_TRUE(table.Find((*table.OpenLeased(0))->token()).ok());
  const auto found = table.Find(token);
  EXPECT_EQ(found.status().code(), absl::StatusCode::kFailedPrecondition);
  const auto detail = GetErrorDetail(found.status());
  EXPECT_EQ(detail->reason, Reason::kWrongServer);
  EXPECT_EQ(detail->value, "a session of server " + there);
  EXPECT_EQ(detail->allowed, "a session of this server, " + here);
  EXPECT_THAT(found.status().ToString(), testing::Not(testing::HasSubstr(token.substr(33))));
  // Whatever is not exactly such a token is nobody's.
  for (const std::string& wrong :
       {token + "0", token.substr(1), std::string(65, '.'), there + ":" + token.substr(33),
        std::string(32, 'B') + token.substr(32)}) {
    EXPECT_EQ(ReasonOf(table.Find(wrong).status()), Reason::kUnauthenticated) << wrong;
  }
}

TEST(BudgetTest, AnAccountsBoundHoldsForAllItsOwners) {
  Budget budget({});
  const Principal::Share share = {.account = 5, .tensors_max = 3, .resident_bytes_max = 100};
  auto first = budget.Take(1, 60, share);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(ReasonOf(budget.Take(2, 41, share).status()), Reason::kBytesExhausted);
  auto second = budget.Take(2, 40, share);
  ASSERT_TRUE(second.ok());
  auto third = budget.Take(3, 0, share);
  ASSERT_TRUE(third.ok());
  EXPECT_EQ(ReasonOf(budget.Take(3, 0, share).status()), Reason::kTensorsExhausted);
  EXPECT_TRUE(budget.Take(4, 1000).ok()) << "nobody's";
  EXPECT_TRUE(
      budget.Take(4, 100, {.account = 6, .tensors_max = 1, .resident_bytes_max = 100}).ok());
  first->reset();
  EXPECT_TRUE(budget.Take(3, 60, share).ok());
  // A bound that was lowered below what is taken refuses all, and overflows nothing.
  const Principal::Share lower = {.account = 5, .tensors_max = 1, .resident_bytes_max = 0};
  EXPECT_EQ(ReasonOf(budget.Take(3, 0, lower).status()), Reason::kTensorsExhausted);
  second->reset();
  third->reset();
  EXPECT_TRUE(budget.Take(3, 0, lower).ok());
  EXPECT_EQ(budget.Total().tensors, 0);
}

}  // namespace
}  // namespace rlk::server
