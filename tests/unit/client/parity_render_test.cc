// What a check found, as text and JSON.
#include "client/cli/parity_render.h"

#include <string>

#include "client/cli/comparison_text.h"
#include "gtest/gtest.h"

namespace rlk::cli {
namespace {

// Two versions, whose outputs have equal bits where one side wrote nothing.
rlk::v1::CheckParityResponse Response() {
  rlk::v1::CheckParityResponse response;
  response.set_passed(false);
  response.set_first_difference("toy.forward y");
  response.set_compared_elements(12);
  response.set_calls(2);
  rlk::v1::OutputVerdict& output = *response.add_outputs();
  output.set_method("toy.forward");
  output.set_output("y");
  output.set_unwritten_left(2);
  output.set_nan_created_right(3);
  output.mutable_comparison()->mutable_counts()->set_compared(12);
  output.mutable_comparison()->set_passed(true);
  output.mutable_comparison()->mutable_rule()->set_bitwise(true);
  rlk::v1::NotCompared& skipped = *response.add_not_compared();
  skipped.set_method("toy.forward");
  skipped.set_output("z");
  skipped.set_reason("the right side has no such output");
  response.mutable_left()->set_where("this server");
  response.mutable_left()->mutable_provenance()->set_git_commit("abc");
  response.mutable_left()->add_methods()->mutable_report()->set_claim(
      rlk::v1::CLAIM_LEVEL_L3_PORTABLE);
  response.mutable_right()->set_where("other:50051");
  response.mutable_right()->mutable_provenance()->set_cpu_isa("x86-64");
  response.add_different_versions("git_commit");
  response.add_different_versions("cpu_isa");
  return response;
}

TEST(ParityText, SaysWhatNoNumberOfDifferencesSays) {
  const std::string text = ParityText(Response());
  for (const char* part :
       {"this server", "other:50051", "the sides are different versions: git_commit, cpu_isa",
        "unwritten 2 left, 0 right", "NaN created 0 left, 3 right",
        "the right side has no such output", "FAILED at toy.forward y: 12 elements compared"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
  rlk::v1::CheckParityResponse same = Response();
  same.clear_different_versions();
  EXPECT_EQ(ParityText(same).find("version"), std::string::npos);
}

TEST(MessageJson, HasEveryFieldOfACheckAndReportsAsACallPrintsThem) {
  const Json json = MessageJson(Response());
  EXPECT_EQ(json["different_versions"], Json({"git_commit", "cpu_isa"}));
  EXPECT_EQ(json["outputs"][0]["unwritten_left"], 2);
  EXPECT_EQ(json["outputs"][0]["comparison"]["counts"]["compared"], 12);
  EXPECT_EQ(json["outputs"][0]["comparison"]["first_mismatch"], nullptr);
  // Unknown is null, never a value.
  EXPECT_EQ(json["left"]["provenance"]["git_commit"], "abc");
  EXPECT_EQ(json["right"]["provenance"]["git_commit"], nullptr);
  EXPECT_EQ(json["left"]["methods"][0]["report"]["claim"], "L3");
}

}  // namespace
}  // namespace rlk::cli
