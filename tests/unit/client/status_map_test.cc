#include "client/cpp/status_map.h"

#include <gtest/gtest.h>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace rlk::client {
namespace {

grpc::Status Rich(grpc::StatusCode code, const std::string& message, const std::string& domain,
                  const std::string& reason) {
  google::rpc::Status status;
  status.set_code(code);
  status.set_message(message);
  google::rpc::ErrorInfo info;
  info.set_domain(domain);
  info.set_reason(reason);
  (*info.mutable_metadata())["field"] = std::string("x");
  (*info.mutable_metadata())["value"] = "F64";
  (*info.mutable_metadata())["allowed"] = "F32, BF16";
  status.add_details()->PackFrom(info);
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(2);
  retry.mutable_retry_delay()->set_nanos(250000000);
  status.add_details()->PackFrom(retry);
  return grpc::Status(code, message, status.SerializeAsString());
}

TEST(StatusMap, RestoresEveryReason) {
  for (int i = 1; i < kReasonCount; ++i) {
    const auto reason = static_cast<Reason>(i);
    // The server's message is what MakeError composed.
    const absl::Status original = MakeError(absl::StatusCode::kResourceExhausted,
                                            {reason, "x", "F64", "F32, BF16", 2250}, "no good");
    const absl::Status restored =
        FromGrpc(Rich(grpc::StatusCode::RESOURCE_EXHAUSTED, std::string(original.message()), "rlk",
                      std::string(ReasonName(reason))));
    EXPECT_EQ(restored, original) << restored << " / " << original;
    EXPECT_EQ(GetErrorDetail(restored)->retry_after_ms, 2250);
  }
}

// Where an error says less than its fields, the server's words for the reason stand in the fields.
TEST(StatusMap, NamesFieldAndAllowedOnce) {
  for (const char* message : {"x: no good, got F64", "no good, got F64; allowed: F32, BF16",
                              "no good, got F64", "x: no good, got F64; allowed: F32, BF16"}) {
    const absl::Status status =
        FromGrpc(Rich(grpc::StatusCode::INVALID_ARGUMENT, message, "rlk", "DTYPE_NOT_ALLOWED"));
    EXPECT_EQ(status.message(), "x: no good, got F64; allowed: F32, BF16") << message;
  }
}

TEST(StatusMap, KeepsStatusesOfOthers) {
  EXPECT_TRUE(FromGrpc(grpc::Status::OK).ok());
  const absl::Status plain = FromGrpc(grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone"));
  EXPECT_EQ(plain, absl::UnavailableError("gone"));
  EXPECT_FALSE(GetErrorDetail(plain).has_value());
  const absl::Status garbage =
      FromGrpc(grpc::Status(grpc::StatusCode::INTERNAL, "odd", "\xff\xff\xff"));
  EXPECT_EQ(garbage, absl::InternalError("odd"));
  EXPECT_FALSE(GetErrorDetail(FromGrpc(Rich(grpc::StatusCode::ABORTED, "m", "other.example",
                                            "DTYPE_NOT_ALLOWED")))
                   .has_value());
}

TEST(StatusMap, TakesReasonsOfNewerServers) {
  const absl::Status status =
      FromGrpc(Rich(grpc::StatusCode::INVALID_ARGUMENT, "m", "rlk", "REASON_OF_TOMORROW"));
  ASSERT_TRUE(GetErrorDetail(status).has_value());
  EXPECT_EQ(GetErrorDetail(status)->reason, Reason::kUnknown);
  EXPECT_EQ(GetErrorDetail(status)->field, "x");
}

}  // namespace
}  // namespace rlk::client
