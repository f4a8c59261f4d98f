#include "server/rpc/status_map.h"

#include <optional>
#include <string>
#include <string_view>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "kernels/core/status.h"
#include "server/rpc/error_texts.h"

namespace rlk::server {
namespace {

// With three texts in two messages and the message itself, the details stay below 6 KiB.
constexpr size_t kTextBytesMax = 512;

// Cuts at a UTF-8 boundary and replaces what protobuf's string fields and gRPC's message cannot
// hold: the text may quote a client's bytes.
std::string Clean(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, kTextBytesMax)) {
    const auto byte = static_cast<unsigned char>(c);
    out.push_back(byte < 0x20 || byte >= 0x7f ? '?' : c);
  }
  if (text.size() > kTextBytesMax) out += "...";
  return out;
}

// kUnknown for a name that this version does not know.
Reason ReasonNamed(std::string_view name) {
  for (int i = 0; i < kReasonCount; ++i) {
    if (ReasonName(static_cast<Reason>(i)) == name) return static_cast<Reason>(i);
  }
  return Reason::kUnknown;
}

void AddDetails(const absl::Status& status, const ErrorDetail& detail, google::rpc::Status& out) {
  google::rpc::ErrorInfo info;
  info.set_domain("rlk");
  info.set_reason(std::string(ReasonName(detail.reason)));
  const ErrorTexts texts = TextsOf(detail.reason);
  const auto text = [](const std::string& precise, std::string_view otherwise) {
    return precise.empty() ? std::string(otherwise) : Clean(precise);
  };
  const std::string field = text(detail.field, texts.field);
  auto& metadata = *info.mutable_metadata();
  metadata["field"] = field;
  metadata["value"] = text(detail.value, texts.value);
  metadata["allowed"] = text(detail.allowed, texts.allowed);
  out.add_details()->PackFrom(info);

  if (status.code() == absl::StatusCode::kInvalidArgument) {
    google::rpc::BadRequest bad_request;
    auto* violation = bad_request.add_field_violations();
    violation->set_field(field);
    violation->set_description(out.message());
    out.add_details()->PackFrom(bad_request);
  }
  if (detail.retry_after_ms > 0) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(detail.retry_after_ms / 1000);
    retry.mutable_retry_delay()->set_nanos(
        static_cast<int32_t>(detail.retry_after_ms % 1000 * 1000000));
    out.add_details()->PackFrom(retry);
  }
}

}  // namespace

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  google::rpc::Status rich;
  if (!rich.ParseFromString(status.error_details())) {
    return absl::Status(code, status.error_message());
  }
  std::optional<ErrorDetail> detail;
  int64_t retry_after_ms = 0;
  for (const google::protobuf::Any& any : rich.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::RetryInfo retry;
    if (any.UnpackTo(&info) && info.domain() == "rlk") {
      const auto text = [&info](const char* key) {
        const auto found = info.metadata().find(key);
        return found == info.metadata().end() ? std::string() : found->second;
      };
      detail =
          ErrorDetail{ReasonNamed(info.reason()), text("field"), text("value"), text("allowed")};
    } else if (any.UnpackTo(&retry)) {
      retry_after_ms = retry.retry_delay().seconds() * 1000 + retry.retry_delay().nanos() / 1000000;
    }
  }
  if (!detail) return absl::Status(code, status.error_message());
  detail->retry_after_ms = retry_after_ms;
  return MakeError(code, *std::move(detail), status.error_message());
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto code = static_cast<grpc::StatusCode>(status.code());
  google::rpc::Status out;
  out.set_code(static_cast<int>(code));
  out.set_message(Clean({status.message().data(), status.message().size()}));
  // An error without our payload is a bug of ours; it still carries a reason.
  ErrorDetail unnamed;
  unnamed.reason = Reason::kInternal;
  AddDetails(status, GetErrorDetail(status).value_or(unnamed), out);
  std::string details = out.SerializeAsString();
  if (details.size() > kStatusDetailsBytesMax) details.clear();
  return grpc::Status(code, out.message(), details);
}

}  // namespace rlk::server
