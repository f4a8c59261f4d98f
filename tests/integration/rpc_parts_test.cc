// The status map and the trace context apart from a server.
#include "kernels/core/status.h"
#include "server/rpc/status_map.h"
#include "server/rpc/trace_context.h"
#include "tests/integration/fixture.h"

namespace rlk::test {
namespace {

using server::ParseTraceparent;
using server::ToGrpcStatus;

TEST(StatusMapTest, CarriesReasonFieldValueAllowedAndViolation) {
  const grpc::Status status = ToGrpcStatus(
      InvalidArgument(Reason::kDtypeNotAllowed, "x", "F64", "F32, F16", "the dtype is wrong"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const ErrorFacts facts = FactsOf(status);
  EXPECT_EQ(facts.domain, "rlk");
  EXPECT_EQ(facts.reason, "DTYPE_NOT_ALLOWED");
  EXPECT_EQ(facts.metadata, (std::map<std::string, std::string>{
                                {"field", "x"}, {"value", "F64"}, {"allowed", "F32, F16"}}));
  EXPECT_EQ(facts.violated_field, "x");
  EXPECT_FALSE(facts.has_retry_info);
}

TEST(StatusMapTest, RetryInfoOnlyWhereARetryHelps) {
  ErrorDetail detail;
  detail.reason = Reason::kQueueFull;
  detail.retry_after_ms = 1250;
  const grpc::Status status =
      ToGrpcStatus(MakeError(absl::StatusCode::kResourceExhausted, detail, "full"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(FactsOf(status).retry_seconds, 1.25);
  EXPECT_EQ(FactsOf(status).violated_field, "");
}

TEST(StatusMapTest, EveryCodeKeepsItsNumberAndGetsAReason) {
  for (int code = 1; code <= 16; ++code) {
    const grpc::Status status =
        ToGrpcStatus(absl::Status(static_cast<absl::StatusCode>(code), "no payload"));
    EXPECT_EQ(static_cast<int>(status.error_code()), code);
    EXPECT_EQ(FactsOf(status).reason, "INTERNAL");
  }
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
}

TEST(StatusMapTest, HugeAndUnprintableTextsStaySmallAndClean) {
  const std::string huge(100000, '\xff');
  const grpc::Status status =
      ToGrpcStatus(InvalidArgument(Reason::kUnknownContract, huge, huge, huge, huge));
  EXPECT_LT(status.error_details().size(), server::kStatusDetailsBytesMax);
  EXPECT_LT(status.error_message().size(), 1024u);
  EXPECT_EQ(FactsOf(status).reason, "UNKNOWN_CONTRACT");
}

TEST(TraceContextTest, TakesWhatTheRecommendationAllows) {
  const std::string trace = "0af7651916cd43dd8448eb211c80319c";
  const std::string good = "00-" + trace + "-b7ad6b7169203331-01";
  const struct {
    std::string header;
    bool valid;
  } cases[] = {
      {good, true},
      {"cc-" + trace + "-b7ad6b7169203331-01", true},
      {"cc-" + trace + "-b7ad6b7169203331-01-what", true},
      {good + "-what", false},
      {good + "x", false},
      {"ff-" + trace + "-b7ad6b7169203331-01", false},
      {"00-" + std::string(32, '0') + "-b7ad6b7169203331-01", false},
      {"00-" + trace + "-0000000000000000-01", false},
      {"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", false},
      {"", false},
      {good.substr(0, 54), false},
      {std::string(55, '-'), false},
  };
  for (const auto& c : cases) {
    const auto parsed = ParseTraceparent(c.header);
    EXPECT_EQ(parsed.has_value(), c.valid) << c.header;
    if (parsed) {
      EXPECT_EQ(*parsed, trace);
    }
  }
}

}  // namespace
}  // namespace rlk::test
