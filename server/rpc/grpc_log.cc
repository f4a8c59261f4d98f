#include "server/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "google/protobuf/stubs/logging.h"
#include "server/log/line_bound.h"

namespace rlk::server {
namespace {

// gRPC's hook takes a plain function, so the logger needs one place that it can see.
std::atomic<const Logger*> routed_logger = nullptr;

// When each place had its last line. There are as many as gRPC has calls of its log.
class Places {
 public:
  using Clock = LineBound::Clock;

  void Forget(Clock::time_point (*now)()) {
    const std::lock_guard lock(mutex_);
    now_ = now;
    lines_.clear();
  }

  // How many lines this one stands for; none where it is to be left out.
  std::optional<int64_t> Admit(std::string_view file, int line) {
    const std::lock_guard lock(mutex_);
    return lines_[{std::string(file), line}].Admit(now_());
  }

 private:
  std::mutex mutex_;
  Clock::time_point (*now_)() = Clock::now;                 // guarded by mutex_
  std::map<std::pair<std::string, int>, LineBound> lines_;  // guarded by mutex_
};

// Never destroyed: gRPC's threads may outlive every static.
Places& AllPlaces() {
  static Places& places = *new Places;
  return places;
}

void LogLine(gpr_log_func_args* args) {
  const Logger* logger = routed_logger.load(std::memory_order_acquire);
  if (logger == nullptr) return;
  const LogLevel level =
      args->severity == GPR_LOG_SEVERITY_ERROR ? LogLevel::kWarning : LogLevel::kDebug;
  if (!logger->enabled(level)) return;
  std::string_view file(args->file);
  if (const size_t slash = file.rfind('/'); slash != std::string_view::npos) {
    file.remove_prefix(slash + 1);
  }
  const auto line = static_cast<int64_t>(args->line);
  if (level == LogLevel::kDebug) {
    logger->Log(level, args->message, {{"source", "grpc"}, {"file", file}, {"line", line}});
    return;
  }
  if (const std::optional<int64_t> lines = AllPlaces().Admit(file, args->line)) {
    logger->Log(level, args->message,
                {{"source", "grpc"}, {"file", file}, {"line", line}, {"lines", *lines}});
  }
}

// What protobuf says of bytes that a caller sent: it must not break the lines of JSON.
void ProtobufLine(google::protobuf::LogLevel severity, const char*, int line,
                  const std::string& message) {
  const Logger* logger = routed_logger.load(std::memory_order_acquire);
  if (logger == nullptr) return;
  const LogLevel level =
      severity == google::protobuf::LOGLEVEL_FATAL ? LogLevel::kError : LogLevel::kDebug;
  if (!logger->enabled(level)) return;
  logger->Log(level, message, {{"source", "protobuf"}, {"line", static_cast<int64_t>(line)}});
}

}  // namespace

void RouteGrpcLog(const Logger* logger, std::chrono::steady_clock::time_point (*now)()) {
  AllPlaces().Forget(now);
  routed_logger.store(logger, std::memory_order_release);
  google::protobuf::SetLogHandler(ProtobufLine);
  gpr_set_log_function(LogLine);
}

}  // namespace rlk::server
