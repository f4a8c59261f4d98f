#include "server/log/log.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
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

// A log must not stop the server: what cannot be written is dropped.
void WriteAll(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
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
  if (!enabled(level)) return;
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
  WriteAll(descriptor_, line);
}

}  // namespace rlk::server
