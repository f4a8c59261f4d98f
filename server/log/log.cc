#include "server/log/log.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "server/log/json.h"

namespace rlk::server {
namespace {

constexpr std::array<std::string_view, 4> kLevelNames = {"debug", "info", "warning", "error"};

void AppendTime(std::string& out) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  const time_t seconds = static_cast<time_t>(micros / 1000000);
  tm parts;
  gmtime_r(&seconds, &parts);
  char date[32], text[48];
  strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &parts);
  snprintf(text, sizeof(text), "%s.%06dZ", date, static_cast<int>(micros % 1000000));
  out += text;
}

// How long a reader may stand still before lines are dropped.
constexpr int kPatienceMs = 200;

std::string Line(LogLevel level, std::string_view message, std::initializer_list<LogField> fields,
                 std::string_view trace_id) {
  std::string line = "{\"time\":\"";
  AppendTime(line);
  line += "\",\"level\":\"";
  line += LogLevelName(level);
  line += "\",\"message\":";
  AppendJsonString(message, line);
  if (!trace_id.empty()) {
    line += ",\"trace_id\":";
    AppendJsonString(trace_id, line);
  }
  for (const LogField& field : fields) {
    line.push_back(',');
    AppendJsonString(field.key, line);
    line.push_back(':');
    line += field.json;
  }
  line += "}\n";
  return line;
}

// How much went out before the descriptor took no more. The flags of the descriptor are not ours to
// change (other processes may share it), so it is asked first; what it then takes without waiting
// is PIPE_BUF bytes.
size_t WriteSome(int descriptor, std::string_view text, int patience_ms) {
  size_t done = 0;
  while (done < text.size()) {
    pollfd ready = {descriptor, POLLOUT, 0};
    const int polled = poll(&ready, 1, patience_ms);
    if (polled < 0 && errno == EINTR) continue;
    if (polled == 0) break;
    const ssize_t written =
        write(descriptor, text.data() + done, std::min<size_t>(text.size() - done, PIPE_BUF));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    done += static_cast<size_t>(written);
  }
  return done;
}

}  // namespace

std::string_view LogLevelName(LogLevel level) { return kLevelNames[static_cast<size_t>(level)]; }

std::optional<LogLevel> ParseLogLevel(std::string_view name) {
  for (size_t i = 0; i < kLevelNames.size(); ++i) {
    if (kLevelNames[i] == name) return static_cast<LogLevel>(i);
  }
  return std::nullopt;
}

LogField::LogField(std::string_view key, std::string_view text) : key(key) {
  AppendJsonString(text, json);
}

LogField::LogField(std::string_view key, bool value) : key(key), json(value ? "true" : "false") {}

LogField::LogField(std::string_view key, double value) : key(key) {
  if (!std::isfinite(value)) {
    json = "null";
    return;
  }
  char text[32];
  snprintf(text, sizeof(text), "%.9g", value);
  json = text;
}

void Logger::Log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields,
                 std::string_view trace_id) const {
  if (enabled(level)) Write(Line(level, message, fields, trace_id));
}

void Logger::Write(std::string_view line) const {
  const std::lock_guard lock(mutex_);
  std::string text = cut_ ? "\n" : "";
  if (lost_lines_ > 0) {
    text += Line(LogLevel::kWarning, "lines of the log were lost", {{"lines", lost_lines_}}, {});
  }
  const size_t before = text.size();
  text += line;
  const size_t done = WriteSome(descriptor_, text, stalled_ ? 0 : kPatienceMs);
  stalled_ = done < text.size();
  if (done > 0) cut_ = text[done - 1] != '\n';
  if (done >= before) lost_lines_ = 0;
  if (stalled_) ++lost_lines_;
}

}  // namespace rlk::server
