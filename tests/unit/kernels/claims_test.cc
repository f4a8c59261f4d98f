// Every claim that a server may show has its evidence in tests/golden/claims.json, and the evidence
// is there.
#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/builtin.h"
#include "kernels/registry/registry.h"
#include "tests/support/golden_json.h"

namespace rlk {
namespace {

using nlohmann::json;

constexpr const char* kLevels[] = {"none", "L0", "L1", "L2", "L3"};

std::string Path(const std::string& file) { return std::string(RLK_SOURCE_DIR) + "/" + file; }

// "contract backend capability level".
std::string Row(const std::string& contract, std::string_view backend,
                const std::string& capability, const std::string& level) {
  return contract + " " + std::string(backend) + " " + capability + " " + level;
}

// What the registry lets a server show; `has_cuda` tells whether this build declares CUDA variants.
std::set<std::string> DeclaredClaims(bool& has_cuda) {
  Registry registry;
  RegisterBuiltin({}, registry);
  std::set<std::string> rows;
  has_cuda = false;
  for (const auto& method : registry.methods()) {
    for (const Variant& variant : method->decl.variants) {
      const bool cuda = BackendDevice(variant.backend) == DeviceKind::kCuda;
      has_cuda |= cuda;
      for (const ContractClaim& claim : variant.contracts) {
        const auto add = [&](const std::string& capability, ClaimLevel level) {
          rows.insert(Row(claim.contract, BackendName(variant.backend), capability,
                          kLevels[static_cast<int>(level)]));
        };
        for (int capability : claim.measured_on) add(std::to_string(capability), claim.claim);
        if (!cuda) {
          EXPECT_TRUE(claim.measured_on.empty()) << variant.kernel << ": the host has none";
          add("", claim.claim);
        } else {
          EXPECT_FALSE(claim.measured_on.empty()) << variant.kernel << " was measured on no GPU";
          add("other", claim.claim_elsewhere);
        }
      }
    }
  }
  return rows;
}

// The text at the end of a path of keys; empty where there is none.
std::string Text(const json& from, const std::vector<std::string>& path) {
  const json* at = &from;
  for (const std::string& key : path) {
    if (!at->is_object() || !at->contains(key)) return "";
    at = &at->at(key);
  }
  return at->is_string() ? at->get<std::string>() : "";
}

// What is wrong with one piece of evidence; empty where it holds.
std::string Problem(const json& evidence, const json& row) {
  if (evidence.contains("construction")) {
    return evidence.at("construction").get<std::string>().empty() ? "no words" : "";
  }
  if (evidence.contains("digests")) {
    const json stored = test::ReadJson(Path(evidence.at("digests")));
    if (stored.is_null()) return "the digests cannot be read";
    if (!stored.contains("cases") || stored.at("cases").empty()) return "no digests";
    // The contract stands once for the file or in each case.
    const auto contract = row.at("contract").get<std::string>();
    if (Text(stored, {"contract"}) == contract) return "";
    for (const json& stored_case : stored.at("cases")) {
      const std::string id =
          Text(stored_case, {"operator"}) + "/" + Text(stored_case, {"contract"});
      if (id == contract) return "";
    }
    return "digests of another contract";
  }
  if (evidence.contains("gpu_run")) {
    const json results = test::ReadJson(Path(evidence.at("gpu_run")));
    if (results.is_null()) return "the results cannot be read";
    for (const std::string section : evidence.at("sections")) {
      if (Text(results, {"sections", section, "result"}) != "passed") return section;
    }
    std::string capability;
    for (const char* bench : {"bench", "norm_bench", "conditioning_bench", "linear_bench"}) {
      if (capability.empty())
        capability = Text(results, {bench, "provenance", "compute_capability"});
    }
    capability.erase(std::remove(capability.begin(), capability.end(), '.'), capability.end());
    const std::string wanted = row.at("compute_capability");
    // A host's claim holds against the GPU of the run, whichever it is.
    return wanted.empty() || wanted == capability ? "" : "a GPU of capability " + capability;
  }
  if (evidence.contains("test")) {
    std::ifstream file(Path(evidence.at("test")));
    std::stringstream text;
    text << file.rdbuf();
    if (evidence.at("names").empty()) return "no test is named";
    for (const std::string name : evidence.at("names")) {
      if (text.str().find(", " + name + ")") == std::string::npos) return "no test " + name;
    }
    return "";
  }
  return "an unknown kind of evidence";
}

// What the row lacks: kinds of evidence that its level needs.
std::string Missing(const json& row) {
  std::set<std::string> kinds;
  for (const json& evidence : row.at("evidence")) {
    for (const char* kind : {"construction", "digests", "gpu_run", "test"}) {
      if (evidence.contains(kind)) kinds.insert(kind);
    }
  }
  if (row.at("claim") == "L3") {
    for (const char* kind : {"digests", "gpu_run", "test"}) {
      if (kinds.count(kind) == 0) return kind;
    }
  }
  return kinds.count("test") == 0 ? "test" : "";
}

TEST(Claims, EachShownClaimHasItsRowAndNoRowIsLeftOver) {
  bool has_cuda = false;
  const std::set<std::string> declared = DeclaredClaims(has_cuda);
  std::set<std::string> listed;
  const json golden = test::LoadGolden("claims.json");
  for (const json& row : golden.at("claims")) {
    const std::string backend = row.at("backend");
    if (!has_cuda && !row.at("compute_capability").get<std::string>().empty()) {
      continue;  // of a GPU: declared by other builds
    }
    EXPECT_TRUE(
        listed
            .insert(Row(row.at("contract"), backend, row.at("compute_capability"), row.at("claim")))
            .second)
        << row.dump();
  }
  EXPECT_EQ(declared, listed);
}

TEST(Claims, TheEvidenceOfEachRowIsThere) {
  const json golden = test::LoadGolden("claims.json");
  ASSERT_GE(golden.at("claims").size(), 4u);
  for (const json& row : golden.at("claims")) {
    EXPECT_EQ(Missing(row), "") << row.dump();
    for (const json& evidence : row.at("evidence")) {
      EXPECT_EQ(Problem(evidence, row), "") << evidence.dump();
    }
  }
}

TEST(Claims, EvidenceThatDoesNotHoldIsSeen) {
  const json golden = test::LoadGolden("claims.json");
  json row;
  for (const json& candidate : golden.at("claims")) {
    if (candidate.at("compute_capability") == "90" && candidate.at("claim") == "L3")
      row = candidate;
  }
  ASSERT_FALSE(row.is_null());
  json gpu_run;
  for (const json& evidence : row.at("evidence")) {
    if (evidence.contains("gpu_run")) gpu_run = evidence;
  }
  EXPECT_EQ(Problem(gpu_run, row), "");
  json other = row;
  other["compute_capability"] = "80";
  EXPECT_EQ(Problem(gpu_run, other), "a GPU of capability 90");
  gpu_run["sections"].push_back("nothing");
  EXPECT_EQ(Problem(gpu_run, row), "nothing");
  gpu_run["gpu_run"] = "tests/gpu/results/nothing.json";
  EXPECT_NE(Problem(gpu_run, row), "");
  other["contract"] = "final_logit_softcap/portable-v2";
  for (const char* text :
       {R"({"digests": "tests/golden/digests_softcap.json"})",
        R"({"test": "tests/unit/kernels/claims_test.cc", "names": ["Nothing"]})",
        R"({"test": "tests/unit/kernels/claims_test.cc", "names": []})", R"({"hope": "yes"})"}) {
    EXPECT_NE(Problem(json::parse(text), other), "") << text;
  }
  row["evidence"].erase(0);
  EXPECT_EQ(Missing(row), "digests");
}

}  // namespace
}  // namespace rlk
