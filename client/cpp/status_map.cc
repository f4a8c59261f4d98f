#include "client/cpp/status_map.h"

#include <string>
#include <string_view>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace rlk::client {
namespace {

Reason ReasonFromName(const std::string& name) {
  for (int i = 0; i < kReasonCount; ++i) {
    if (ReasonName(static_cast<Reason>(i)) == name) return static_cast<Reason>(i);
  }
  return Reason::kUnknown;
}

std::string Metadata(const google::rpc::ErrorInfo& info, const char* key) {
  const auto it = info.metadata().find(key);
  return it == info.metadata().end() ? std::string() : it->second;
}

// The server's message was composed by MakeError, which will put field and allowed set around it
// again. It has neither where the server knew no more than the words for the reason.
std::string WithoutDetail(std::string_view message, const ErrorDetail& detail) {
  const std::string prefix = detail.field + ": ", suffix = "; allowed: " + detail.allowed;
  if (!detail.field.empty() && message.starts_with(prefix)) message.remove_prefix(prefix.size());
  if (!detail.allowed.empty() && message.ends_with(suffix)) message.remove_suffix(suffix.size());
  return std::string(message);
}

}  // namespace

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  google::rpc::Status rich;
  ErrorDetail detail;
  bool found = false;
  if (!status.error_details().empty() && rich.ParseFromString(status.error_details())) {
    for (const google::protobuf::Any& any : rich.details()) {
      google::rpc::ErrorInfo info;
      google::rpc::RetryInfo retry;
      if (any.Is<google::rpc::ErrorInfo>() && any.UnpackTo(&info) && info.domain() == "rlk") {
        found = true;
        detail.reason = ReasonFromName(info.reason());
        detail.field = Metadata(info, "field");
        detail.value = Metadata(info, "value");
        detail.allowed = Metadata(info, "allowed");
      } else if (any.Is<google::rpc::RetryInfo>() && any.UnpackTo(&retry)) {
        detail.retry_after_ms =
            retry.retry_delay().seconds() * 1000 + retry.retry_delay().nanos() / 1000000;
      }
    }
  }
  if (!found) return absl::Status(code, status.error_message());
  return MakeError(code, detail, WithoutDetail(status.error_message(), detail));
}

}  // namespace rlk::client
