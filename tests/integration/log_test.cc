#include "server/log/log.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <sstream>
#include <vector>

#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "server/log/json.h"
#include "tests/integration/fixture.h"

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

// What nobody reads: a pipe of one page, or a socket.
class Unread {
 public:
  explicit Unread(bool socket) {
    EXPECT_EQ(socket ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_.data())
                     : pipe2(ends_.data(), O_CLOEXEC),
              0);
    if (!socket) fcntl(writer(), F_SETPIPE_SZ, 4096);
  }
  ~Unread() {
    close(ends_[0]);
    close(ends_[1]);
  }
  Unread(const Unread&) = delete;
  Unread& operator=(const Unread&) = delete;

  int writer() const { return ends_[1]; }

  // What lies there.
  std::string Read() const {
    std::string text;
    fcntl(ends_[0], F_SETFL, O_NONBLOCK);
    char buffer[4096];
    for (ssize_t got; (got = read(ends_[0], buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, static_cast<size_t>(got));
    }
    return text;
  }

 private:
  std::array<int, 2> ends_ = {-1, -1};
};

struct Lines {
  // Whole lines by their message.
  std::vector<std::string> messages;
  int64_t told_lost = 0;
  int64_t broken = 0;
};

Lines Parse(const std::string& text) {
  Lines lines;
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    google::protobuf::Struct parsed;
    if (!google::protobuf::util::JsonStringToMessage(line, &parsed).ok()) {
      ++lines.broken;
      continue;
    }
    lines.messages.push_back(parsed.fields().at("message").string_value());
    if (lines.messages.back() != "lines of the log were lost") continue;
    lines.told_lost += static_cast<int64_t>(parsed.fields().at("lines").number_value());
  }
  return lines;
}

TEST(LogTest, AReaderThatStandsStillLosesLinesAndIsToldHowMany) {
  constexpr int64_t kLines = 2000;
  // The last is longer than what a pipe takes at once, so it can be cut.
  for (const size_t bytes : {10, 1000, 5000}) {
    for (const bool socket : {false, true}) {
      SCOPED_TRACE(std::to_string(bytes) + (socket ? " to a socket" : " to a pipe"));
      const Unread unread(socket);
      const Logger logger(LogLevel::kInfo, unread.writer());
      const std::string message(bytes, 'm');
      for (int64_t i = 0; i < kLines; ++i) logger.Info(message);
      const std::string first = unread.Read();
      logger.Info("read again");
      const std::string second = unread.Read();
      logger.Info("and now nothing is lost");
      const Lines lines = Parse(first + second + unread.Read());
      const auto whole = std::count(lines.messages.begin(), lines.messages.end(), message);
      EXPECT_LT(whole, kLines);
      EXPECT_EQ(whole + lines.told_lost, kLines);
      EXPECT_LE(lines.broken, 1);
      ASSERT_GE(lines.messages.size(), 3u);
      EXPECT_EQ(std::vector<std::string>(lines.messages.end() - 3, lines.messages.end()),
                (std::vector<std::string>{"lines of the log were lost", "read again",
                                          "and now nothing is lost"}));
    }
  }
}

TEST(LogTest, ALineThatAFullFileCutDoesNotSpoilTheNext) {
  // The file may not grow: what a full disk does.
  rlimit usual = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &usual), 0);
  const auto former = std::signal(SIGXFSZ, SIG_IGN);
  const int fd = memfd_create("log", MFD_CLOEXEC);
  const Logger logger(LogLevel::kInfo, fd);
  logger.Info("whole");
  const rlimit full = {static_cast<rlim_t>(lseek(fd, 0, SEEK_CUR)) + 20, usual.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  logger.Info("cut");
  logger.Info("dropped");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &usual), 0);
  std::signal(SIGXFSZ, former);
  logger.Info("whole again");
  const Lines lines = Parse(Written(fd));
  EXPECT_EQ(lines.messages,
            (std::vector<std::string>{"whole", "lines of the log were lost", "whole again"}));
  EXPECT_EQ(lines.told_lost, 2);
  EXPECT_EQ(lines.broken, 1);
  close(fd);
}

TEST(LogTest, AServerWhoseLogNobodyReadsServesAndDrains) {
  const Unread unread(/*socket=*/false);
  test::TestServer server(test::TestOptions(), {}, LogLevel::kDebug, unread.writer());
  const auto stub = rlk::v1::ActivationService::NewStub(test::DefaultChannel(server.tcp()));
  for (int i = 0; i < 300; ++i) {
    grpc::ClientContext context;
    rlk::v1::FinalLogitSoftcapForwardResponse response;
    const grpc::Status status =
        stub->FinalLogitSoftcapForward(&context, test::ForwardRequest(), &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  EXPECT_TRUE(server.server().Drain(0, 5));
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
