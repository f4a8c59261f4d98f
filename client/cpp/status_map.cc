#include "client/cpp/status_map.h"

#include <string>

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
  return MakeError(code, detail, status.error_message());
}

}  // namespace rlk::client
