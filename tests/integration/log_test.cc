#include "server/log/log.h"

#include <sys/mman.h>
#include <unistd.h>

#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "server/log/json.h"

namespace rlk::server {
namespace {

std::string Written(int fd) {
  std::string text(static_cast<size_t>(lseek(fd, 0, SEEK_CUR)), '\0');
  EXPECT_EQ(pread(fd, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  return text;
}

TEST(LogTest, LineIsJsonWithTimeLevelMessageTraceAndFields) {
  const int fd = memfd_create("log", MFD_CLOEXEC);
  const Logger logger(LogLevel::kInfo, fd);
  logger.Log(LogLevel::kWarning, "a \"quoted\"\nline",
             {{"text", "x\\y"}, {"number", 42}, {"flag", true}, {"seconds", 0.5}}, "abc");
  logger.Debug("below the level");
  google::protobuf::Struct line;
  const std::string text = Written(fd);
  ASSERT_EQ(text.back(), '\n');
  ASSERT_EQ(text.find('\n'), text.size() - 1) << "one line";
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(text, &line).ok()) << text;
  EXPECT_EQ(line.fields().at("level").string_value(), "warning");
  EXPECT_EQ(line.fields().at("message").string_value(), "a \"quoted\"\nline");
  EXPECT_EQ(line.fields().at("trace_id").string_value(), "abc");
  EXPECT_EQ(line.fields().at("text").string_value(), "x\\y");
  EXPECT_EQ(line.fields().at("number").number_value(), 42);
  EXPECT_TRUE(line.fields().at("flag").bool_value());
  EXPECT_EQ(line.fields().at("seconds").number_value(), 0.5);
  EXPECT_EQ(line.fields().at("time").string_value().size(), 27u);
  close(fd);
}

TEST(LogTest, JsonStringsAreValidWhateverTheBytes) {
  const struct {
    std::string text, json;
  } cases[] = {
      {"plain", "\"plain\""},
      {std::string("\0\x1f\x7f", 3), "\"\\u0000\\u001f\\u007f\""},
      {"\xc3\xa4", "\"\xc3\xa4\""},
      {"\xc3", "\"\\ufffd\""},
      {"\xc0\x80", "\"\\ufffd\\ufffd\""},             // overlong
      {"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""},  // a surrogate
      {"\xf0\x9f\x98\x80", "\"\xf0\x9f\x98\x80\""},
      {"\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""},  // beyond U+10FFFF
  };
  for (const auto& c : cases) EXPECT_EQ(JsonString(c.text), c.json);
}

}  // namespace
}  // namespace rlk::server
