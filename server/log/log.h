// Structured log: one JSON object a line on a file descriptor, stderr as a rule.
//
//   {"time":"2026-01-02T03:04:05.678901Z","level":"info","message":"serving","port":50051}
//
// No payload bytes, no secrets, no pointers.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace rlk::server {

enum class LogLevel : uint8_t { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

std::string_view LogLevelName(LogLevel level);
std::optional<LogLevel> ParseLogLevel(std::string_view name);

// A field of a line, its value already JSON.
struct LogField {
  LogField(std::string_view key, std::string_view text);
  LogField(std::string_view key, const char* text) : LogField(key, std::string_view(text)) {}
  LogField(std::string_view key, const std::string& text) : LogField(key, std::string_view(text)) {}
  LogField(std::string_view key, bool value);
  LogField(std::string_view key, double value);
  template <typename T, typename = std::enable_if_t<std::is_integral_v<T>>>
  LogField(std::string_view key, T value) : key(key), json(std::to_string(value)) {}

  std::string_view key;
  std::string json;
};

// Thread-safe: lines do not mix. A log must not stop the server: where the descriptor takes nothing
// (a pipe or socket whose reader stands still, a full disk), lines are dropped, after 200 ms for
// the first of them. When it takes some again, a line "lines of the log were lost" counts them
// ("lines"); one that was cut ends there.
class Logger {
 public:
  explicit Logger(LogLevel level, int descriptor = 2) : level_(level), descriptor_(descriptor) {}

  bool enabled(LogLevel level) const { return level >= level_; }
  void Log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields = {},
           std::string_view trace_id = {}) const;

  void Debug(std::string_view message, std::initializer_list<LogField> fields = {}) const {
    Log(LogLevel::kDebug, message, fields);
  }
  void Info(std::string_view message, std::initializer_list<LogField> fields = {}) const {
    Log(LogLevel::kInfo, message, fields);
  }
  void Warning(std::string_view message, std::initializer_list<LogField> fields = {}) const {
    Log(LogLevel::kWarning, message, fields);
  }
  void Error(std::string_view message, std::initializer_list<LogField> fields = {}) const {
    Log(LogLevel::kError, message, fields);
  }

 private:
  void Write(std::string_view line) const;

  const LogLevel level_;
  const int descriptor_;
  mutable std::mutex mutex_;
  mutable bool stalled_ = false;    // guarded by mutex_: the last line did not go out
  mutable bool cut_ = false;        // guarded by mutex_: what went out last is no whole line
  mutable int64_t lost_lines_ = 0;  // guarded by mutex_
};

}  // namespace rlk::server
