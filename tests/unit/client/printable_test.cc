#include "client/cli/printable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "client/cli/command.h"
#include "client/cli/render.h"
#include "client/cli/safetensors.h"
#include "tests/unit/client/temporary_file.h"

namespace rlk::cli {
namespace {

using namespace std::string_literals;

TEST(Printable, ReplacesWhatSteersATerminal) {
  const struct {
    const char* name;
    std::string text, printable;
  } cases[] = {
      {"plain text", "a b~", "a b~"},
      {"letters of other scripts", "caf\xc3\xa9 \xe6\x97\xa5 \xf0\x9f\x98\x80",
       "caf\xc3\xa9 \xe6\x97\xa5 \xf0\x9f\x98\x80"},
      {"a backslash", "a\\x1b", "a\\x1b"},
      {"an escape sequence", "\x1b[2J", "\\x1b[2J"},
      {"NUL", "a\0b"s, "a\\x00b"},
      {"a tab and line ends", "a\tb\r\n", "a\\x09b\\x0d\\x0a"},
      {"DEL", "\x7f", "\\x7f"},
      {"CSI as C1",
       "\xc2\x9b"
       "31m",
       "\\xc2\\x9b31m"},
      {"a letter beside C1", "\xc2\xa0\xc3\x80", "\xc2\xa0\xc3\x80"},
      {"a direction override",
       "a\xe2\x80\xae"
       "b",
       "a\\xe2\\x80\\xaeb"},
      {"an isolate", "\xe2\x81\xa6", "\\xe2\\x81\\xa6"},
      {"a dash beside them", "\xe2\x80\x93", "\xe2\x80\x93"},
      {"bytes that are not UTF-8", "\xff\xc3(", "\\xff\\xc3("},
      {"a cut sequence", "\xe6\x97", "\\xe6\\x97"},
      {"an overlong escape", "\xc0\x9b", "\\xc0\\x9b"},
  };
  for (const auto& [name, text, printable] : cases) EXPECT_EQ(Printable(text), printable) << name;
  EXPECT_EQ(PrintableLines("a\n\x1b"
                           "b\n"),
            "a\n\\x1b"
            "b\n");
}

bool IsPlain(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return c == '\n' || (static_cast<unsigned char>(c) >= 0x20 && c != '\x7f');
  });
}

TEST(Printable, HoldsForTables) {
  Table table({"key", "shape"});
  table.Add({"a\x1b[31m\nrow", "2"});
  EXPECT_EQ(table.Text(), "key               shape\na\\x1b[31m\\x0arow  2\n");
}

TEST(Printable, HoldsForNamesInFilesAndOnTheCommandLine) {
  auto tensor = client::Tensor::Allocate(DType::kU8, std::vector<int64_t>{1});
  ASSERT_TRUE(tensor.ok());
  tensor->mutable_as<uint8_t>()[0] = 7;
  const std::string hostile = "a\x1b]0;owned\x07\xc2\x9b";
  const TemporaryFile file(".safetensors");
  ASSERT_TRUE(WriteSafetensors(file.path(), {{hostile, &*tensor}, {"b", &*tensor}}).ok());
  const std::vector<std::string> calls[] = {
      {"digest", file.path()},
      {"digest", file.path() + "#missing"},
      {"digest", file.path() + "#" + hostile},
      {"digest", hostile},
      {"\x1b[2J"},
      {"digest", "--\x1b[2J"},
  };
  for (std::vector<std::string> words : calls) {
    for (const bool json : {false, true}) {
      if (json) words.push_back("--json");
      std::ostringstream out, err;
      RunCommand(words, out, err);
      EXPECT_TRUE(IsPlain(out.str())) << words[0] << ": " << out.str();
      EXPECT_TRUE(IsPlain(err.str())) << words[0] << ": " << err.str();
      EXPECT_THAT(out.str() + err.str(), testing::Not(testing::HasSubstr("\xc2\x9b")));
    }
  }
}

}  // namespace
}  // namespace rlk::cli
