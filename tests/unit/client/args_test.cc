#include "client/cli/args.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

const std::vector<OptionSpec> kSpecs = {{"--json", false}, {"--server"}, {"--want", true, true}};

TEST(Args, TakesBothSpellingsAndPositionals) {
  const auto args =
      Args::Parse({"a", "--server", "h:1", "--json", "b=c", "--want=y", "--want", "z"}, kSpecs);
  ASSERT_TRUE(args.ok()) << args.status();
  EXPECT_THAT(args->positional(), testing::ElementsAre("a", "b=c"));
  EXPECT_EQ(args->Get("--server"), "h:1");
  EXPECT_TRUE(args->Has("--json"));
  EXPECT_THAT(args->GetAll("--want"), testing::ElementsAre("y", "z"));
}

TEST(Args, EndsOptionsAtDoubleDash) {
  const auto args = Args::Parse({"--", "--json"}, kSpecs);
  ASSERT_TRUE(args.ok());
  EXPECT_FALSE(args->Has("--json"));
  EXPECT_THAT(args->positional(), testing::ElementsAre("--json"));
}

TEST(Args, RefusesWhatItDoesNotKnow) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--nope"}, "--json, --server, --want"}, {{"--server"}, "needs a value"},
      {{"--json=1"}, "takes no value"},         {{"--server", "a", "--server", "b"}, "given twice"},
      {{"--serve", "a"}, "no such option"},
  };
  for (const auto& [words, expected] : cases) {
    const auto args = Args::Parse(words, kSpecs);
    ASSERT_FALSE(args.ok()) << words[0];
    EXPECT_THAT(std::string(args.status().message()), testing::HasSubstr(expected));
  }
}

TEST(Args, RefusesTheOptionsOfOtherVerbs) {
  const VerbOptions verbs = {{"one", {{"--a"}, {"--both", false}}},
                             {"two", {{"--b"}, {"--both", false}}}};
  const std::vector<OptionSpec> all = AllOptions(verbs);
  EXPECT_EQ(all.size(), 3u);
  for (const auto& [words, verb, refused] :
       {std::tuple<std::vector<std::string>, std::string, std::string>{{"--a=1"}, "one", ""},
        {{"--both", "--b=1"}, "two", ""},
        {{"--b=1"}, "one", "--b"},
        {{"--both", "--a=1"}, "two", "--a"}}) {
    const auto args = Args::Parse(words, all);
    ASSERT_TRUE(args.ok()) << args.status();
    const absl::Status status = CheckVerbOptions(*args, verbs, "command", verb);
    EXPECT_EQ(status.ok(), refused.empty()) << status;
    if (refused.empty()) continue;
    const auto detail = GetErrorDetail(status);
    ASSERT_TRUE(detail.has_value());
    EXPECT_EQ(detail->field, refused);
    EXPECT_EQ(detail->allowed, verb == "one" ? "--a, --both" : "--b, --both");
  }
}

TEST(Args, BoundsIntegers) {
  for (const char* text : {"", "0", "11", "1.5", " 2", "2 ", "9999999999999999999999", "x"}) {
    const auto args = Args::Parse({std::string("--server=") + text}, kSpecs);
    ASSERT_TRUE(args.ok());
    EXPECT_FALSE(args->GetInteger("--server", 5, 1, 10).ok()) << text;
  }
  EXPECT_EQ(*Args::Parse({"--server=10"}, kSpecs)->GetInteger("--server", 5, 1, 10), 10);
  EXPECT_EQ(*Args::Parse({}, kSpecs)->GetInteger("--server", 5, 1, 10), 5);
}

}  // namespace
}  // namespace rlk::cli
