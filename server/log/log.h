// Structured log: one JSON object a line on a file descriptor, stderr as a rule.
//
//   {"time":"2026-01-02T03:04:05.678901Z","level":"info","message":"serving","port":50051}
//
// No payload bytes, no secrets, no pointers.
#pragma once

#include <cstdint>
#include <initializer_list>
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

// Thread-safe: a line is one write.
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
  const LogLevel level_;
  const int descriptor_;
};

}  // namespace rlk::server
