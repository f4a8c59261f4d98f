#include "server/options.h"

#include <fstream>

#include "gtest/gtest.h"
#include "kernels/core/status.h"
#include "tests/integration/fixture.h"

namespace rlk::server {
namespace {

TEST(OptionsTest, DefaultsAreThoseOfTheStructs) {
  const auto options = ParseOptions({});
  ASSERT_TRUE(options.ok()) << options.status();
  const Options defaults;
  EXPECT_EQ(options->listen, defaults.listen);
  EXPECT_EQ(options->unix_path, defaults.unix_path);
  EXPECT_EQ(options->metrics, defaults.metrics);
  EXPECT_TRUE(options->backends.empty());
  EXPECT_EQ(options->drain_seconds, defaults.drain_seconds);
  EXPECT_EQ(options->watchdog_ms, defaults.watchdog_ms);
  EXPECT_EQ(options->selftest_interval_seconds, defaults.selftest_interval_seconds);
  EXPECT_EQ(options->replay_every, 0);
  EXPECT_EQ(options->record, "");
  EXPECT_EQ(options->record_bytes_max, defaults.record_bytes_max);
  EXPECT_EQ(options->record_queue_bytes_max, defaults.record_queue_bytes_max);
  EXPECT_EQ(options->limits.call_bytes_max, Limits().call_bytes_max);
  EXPECT_EQ(options->limits.inline_bytes_max, Limits().inline_bytes_max);
}

TEST(OptionsTest, ReadsEveryFormOfAFlag) {
  test::TempDir dir;
  std::ofstream(dir.File("flags")) << "# a comment\n\n  --drain-seconds=7\n--queue_calls_max=9\n";
  const auto options =
      ParseOptions({"--listen=a:1,b:2", "--listen", "c:3", "--unix=/s",
                    "--metrics=", "--backends=cpu,golden", "--threads", "3", "--log-level=debug",
                    "--flagfile=" + dir.File("flags"), "--rank-max=4", "--device_bytes_max=5"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->listen, (std::vector<std::string>{"a:1", "b:2", "c:3"}));
  EXPECT_EQ(options->unix_path, "/s");
  EXPECT_EQ(options->metrics, "");
  EXPECT_EQ(options->backends, (std::vector<Backend>{Backend::kCpu, Backend::kGolden}));
  EXPECT_EQ(options->threads, 3);
  EXPECT_EQ(options->log_level, LogLevel::kDebug);
  EXPECT_EQ(options->drain_seconds, 7);
  EXPECT_EQ(options->limits.queue_calls_max, 9);
  EXPECT_EQ(options->limits.rank_max, 4);
  EXPECT_EQ(options->limits.device_bytes_max, 5);
}

TEST(OptionsTest, EachWrongValueNamesFlagValueAndAllowedSet) {
  test::TempDir dir;
  std::ofstream(dir.File("loop")) << "--flagfile=" << dir.File("loop") << "\n";
  std::ofstream(dir.File("bad")) << "--threads=-1\n";
  std::ofstream(dir.File("token")) << "# mine\nSECRET-0123\n";
  std::ofstream(dir.File("dashes")) << "--SECRET-0123\n";
  const struct {
    std::vector<std::string> arguments;
    const char* field;
  } cases[] = {
      {{"--nothing=1"}, "--nothing"},
      {{"word"}, "arguments"},
      {{"-x"}, "arguments"},
      {{"--threads"}, "--threads"},
      {{"--threads="}, "--threads"},
      {{"--threads=1.5"}, "--threads"},
      {{"--threads=1025"}, "--threads"},
      {{"--listen=localhost"}, "--listen"},
      {{"--listen=:1"}, "--listen"},
      {{"--listen=a:65536"}, "--listen"},
      {{"--listen=a:-1"}, "--listen"},
      {{"--listen=a:+1"}, "--listen"},
      {{"--listen=a: 1"}, "--listen"},
      {{"--listen=::1:0"}, "--listen"},
      {{"--listen=[::1:0"}, "--listen"},
      {{"--listen=unix:/s:1"}, "--listen"},
      {{"--listen=a/b:1"}, "--listen"},
      {{"--listen="}, "--listen"},
      {{"--metrics=nowhere"}, "--metrics"},
      {{"--backends=cpu,tpu"}, "--backends"},
      {{"--drain-seconds=-1"}, "--drain-seconds"},
      {{"--drain-seconds=nan"}, "--drain-seconds"},
      {{"--drain-delay-seconds=1e9"}, "--drain-delay-seconds"},
      {{"--watchdog-ms=0"}, "--watchdog-ms"},
      {{"--keepalive-ms=0"}, "--keepalive-ms"},
      {{"--keepalive-timeout-ms=x"}, "--keepalive-timeout-ms"},
      {{"--selftest-interval-seconds=often"}, "--selftest-interval-seconds"},
      {{"--replay-every=-1"}, "--replay-every"},
      {{"--record-tensors=yes"}, "--record-tensors"},
      {{"--record-tensors=true"}, "--record-tensors"},
      {{"--record-bytes-max=0"}, "--record-bytes-max"},
      {{"--record-queue-bytes-max=0"}, "--record-queue-bytes-max"},
      {{"--log-level=loud"}, "--log-level"},
      {{"--rank-max=9"}, "--rank-max"},
      {{"--rank-max=0"}, "--rank-max"},
      {{"--tensors-per-call-max=0"}, "--tensors-per-call-max"},
      {{"--call-bytes-max=-5"}, "--call-bytes-max"},
      {{"--message-bytes-max=2147483648"}, "--message-bytes-max"},
      {{"--message-bytes-max=1024"}, "--message-bytes-max"},
      {{"--inline-bytes-max=8388608"}, "--inline-bytes-max"},
      {{"--header-bytes-max=0"}, "--header-bytes-max"},
      {{"--queue-calls-max=x"}, "--queue-calls-max"},
      {{"--queue-bytes-max=0"}, "--queue-bytes-max"},
      {{"--attribute-text-bytes-max=0"}, "--attribute-text-bytes-max"},
      {{"--reference-elements-max=0"}, "--reference-elements-max"},
      {{"--connections-max=0"}, "--connections-max"},
      {{"--streams-per-connection-max=0"}, "--streams-per-connection-max"},
      {{"--device-bytes-max=99999999999999999999"}, "--device-bytes-max"},
      {{"--flagfile=/nonexistent"}, "--flagfile"},
      {{"--flagfile=/"}, "--flagfile"},
      {{"--flagfile=/dev/zero"}, "--flagfile"},
      {{"--flagfile="}, "--flagfile"},
      {{"--flagfile=" + dir.File("loop")}, "--flagfile"},
      {{"--flagfile=" + dir.File("bad")}, "--threads"},
      // Secrets in the wrong place.
      {{"--flagfile=" + dir.File("token")}, "--flagfile"},
      {{"--flagfile=" + dir.File("dashes")}, "--flagfile"},
      {{"--tokens", "file", "SECRET-0123"}, "arguments"},
      {{"--token=SECRET-0123"}, "--token"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.arguments[0]);
    const auto options = ParseOptions(c.arguments);
    ASSERT_FALSE(options.ok());
    const auto detail = GetErrorDetail(options.status());
    ASSERT_TRUE(detail.has_value());
    EXPECT_EQ(detail->field, c.field);
    EXPECT_FALSE(detail->allowed.empty());
    EXPECT_EQ(options.status().message().find("SECRET"), std::string::npos) << options.status();
  }
}

TEST(OptionsTest, HelpNamesEveryFlagWithItsDefault) {
  const std::string help = OptionsHelp();
  for (const char* flag :
       {"--listen=127.0.0.1:50051", "--unix=", "--metrics=127.0.0.1:9464", "--backends=",
        "--threads=0", "--drain-seconds=5", "--drain-delay-seconds=0", "--watchdog-ms=30000",
        "--selftest-interval-seconds=60", "--log-level=info", "--inline-bytes-max=2097152",
        "--keepalive-ms=60000", "--keepalive-timeout-ms=20000", "--header-bytes-max=65536"}) {
    EXPECT_NE(help.find(flag), std::string::npos) << flag;
  }
}

}  // namespace
}  // namespace rlk::server
