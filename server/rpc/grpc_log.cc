#include "server/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include <atomic>
#include <string>

#include "google/protobuf/stubs/logging.h"

namespace rlk::server {
namespace {

// gRPC's hook takes a plain function, so the logger needs one place that it can see.
std::atomic<const Logger*> routed_logger = nullptr;

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
  logger->Log(level, args->message,
              {{"source", "grpc"}, {"file", file}, {"line", static_cast<int64_t>(args->line)}});
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

void RouteGrpcLog(const Logger* logger) {
  routed_logger.store(logger, std::memory_order_release);
  google::protobuf::SetLogHandler(ProtobufLine);
  gpr_set_log_function(LogLine);
}

}  // namespace rlk::server
