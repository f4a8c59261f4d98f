#include "client/cli/render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "client/cli/latency.h"
#include "kernels/core/status.h"
#include "rlk/v1/contract.pb.h"

namespace rlk::cli {
namespace {

TEST(Render, PadsColumnsByCharacters) {
  Table table({"a", "name"});
  table.Add({"caf\xc3\xa9", "x"});
  table.Add({"long cell", ""});
  EXPECT_EQ(table.Text(), "a          name\ncaf\xc3\xa9       x\nlong cell\n");
}

TEST(Render, NamesEnumsWithoutTheirPrefix) {
  EXPECT_EQ(EnumText(rlk::v1::Mode_descriptor(), rlk::v1::MODE_STRICT), "strict");
  EXPECT_EQ(EnumText(rlk::v1::InputCapture_descriptor(), rlk::v1::INPUT_CAPTURE_SNAPSHOT),
            "snapshot");
  EXPECT_EQ(EnumText(rlk::v1::Direction_descriptor(), 77), "77");
  EXPECT_EQ(ClaimText(rlk::v1::CLAIM_LEVEL_L3_PORTABLE), "L3");
  EXPECT_EQ(ClaimText(rlk::v1::CLAIM_LEVEL_L0_REPEATABLE), "L0");
  EXPECT_EQ(ClaimText(rlk::v1::CLAIM_LEVEL_UNSPECIFIED), "none");
}

TEST(Render, WritesNonFiniteValuesAsStrings) {
  auto tensor = client::Tensor::Allocate(DType::kF32, std::vector<int64_t>{4});
  ASSERT_TRUE(tensor.ok());
  const float values[] = {1.5f, NAN, -INFINITY, 2.0f};
  std::copy(std::begin(values), std::end(values), tensor->mutable_as<float>().begin());
  EXPECT_EQ(FirstJson(*tensor, 3).dump(), R"([1.5,"nan","-inf"])");
  EXPECT_EQ(FirstText(*tensor, 3), "1.5 nan -inf ...");
  EXPECT_EQ(NumberJson(std::numeric_limits<double>::infinity()).dump(), R"("inf")");
}

TEST(Render, WritesErrorsAsOneObject) {
  const Json json =
      Json::parse(Dump({{"error", StatusJson(InvalidArgument(Reason::kAttributeOutOfRange,
                                                             "softcap", "0", "above 0", "no"))}}));
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(json["error"]["reason"], "ATTRIBUTE_OUT_OF_RANGE");
  EXPECT_EQ(json["error"]["field"], "softcap");
  EXPECT_EQ(json["error"]["value"], "0");
  EXPECT_EQ(json["error"]["allowed"], "above 0");
  // Bytes that are not UTF-8 do not end the program.
  EXPECT_FALSE(Dump({{"error", StatusJson(absl::InternalError("\xff\xfe"))}}).empty());
}

TEST(Render, ReportKeepsEveryPart) {
  rlk::v1::CallReport report;
  report.set_contract("op/portable-v1");
  report.set_backend("cpu");
  report.set_claim(rlk::v1::CLAIM_LEVEL_L3_PORTABLE);
  auto* rejected = report.add_rejected();
  rejected->set_backend("cuda");
  rejected->set_reason("no device");
  report.mutable_fallback()->set_from_backend("cuda_sm90");
  (*report.mutable_attributes())["softcap"].set_number(20);
  (*report.mutable_attributes())["output_dtype"].set_dtype(rlk::v1::DATA_TYPE_F32);
  auto* digest = report.add_output_digests();
  digest->set_name("y");
  digest->set_digest("xxh3-tree4k-v1:00");
  report.mutable_verification()->set_verification(rlk::v1::VERIFICATION_REFERENCE);
  report.mutable_verification()->add_outputs()->set_max_abs_error(INFINITY);
  report.mutable_phases()->set_kernel_ns(1500);
  const Json json = Json::parse(Dump(ReportJson(report)));
  EXPECT_EQ(json["claim"], "L3");
  EXPECT_EQ(json["rejected"][0]["reason"], "no device");
  EXPECT_EQ(json["fallback"]["from_backend"], "cuda_sm90");
  EXPECT_EQ(json["attributes"]["softcap"], 20.0);
  EXPECT_EQ(json["attributes"]["output_dtype"], "F32");
  EXPECT_EQ(json["output_digests"]["y"], "xxh3-tree4k-v1:00");
  EXPECT_EQ(json["verification"]["passed"], false);
  EXPECT_EQ(json["verification"]["outputs"][0]["max_abs_error"], "inf");
  EXPECT_EQ(json["phases"]["kernel_ns"], 1500);
  const std::string text = ReportText(report);
  for (const char* part : {"op/portable-v1", "no device", "cuda_sm90", "softcap=20",
                           "output_dtype=F32", "FAILED", "kernel 1.5 us"}) {
    EXPECT_THAT(text, testing::HasSubstr(part));
  }
  EXPECT_TRUE(ReportJson({})["fallback"].is_null());
  EXPECT_TRUE(ReportJson({})["verification"].is_null());
}

TEST(Latency, TakesTheNearestRank) {
  LatencySamples samples;
  for (int us : {50, 10, 40, 20, 30}) samples.Add(std::chrono::microseconds(us));
  EXPECT_EQ(samples.Percentile(0), 10);
  EXPECT_EQ(samples.Percentile(0.5), 30);
  EXPECT_EQ(samples.Percentile(0.9), 50);
  EXPECT_EQ(samples.Percentile(0.2), 10);
  EXPECT_EQ(samples.Percentile(1), 50);
}

}  // namespace
}  // namespace rlk::cli
