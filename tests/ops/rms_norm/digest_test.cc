// The stored L3 digests, recomputed by the cpu backend with every instruction set.
#include <fstream>

#include "gtest/gtest.h"
#include "tests/ops/rms_norm/norm_digest.h"

namespace rlk::test {
namespace {

std::vector<NormDigestCase> Load() {
  std::ifstream file(std::string(RLK_SOURCE_DIR) + "/tests/golden/digests_rms_norm.json");
  return NormDigestCases(nlohmann::json::parse(file));
}

TEST(NormDigests, AreTheStoredOnes) {
  const std::vector<NormDigestCase> cases = Load();
  EXPECT_GE(cases.size(), 100u);
  for (const NormDigestCase& c : cases) {
    for (Isa isa : {Isa::kBase, Isa::kV3, Isa::kV4}) {
      if (isa > BestIsa()) continue;
      EXPECT_EQ(nlohmann::json(DigestsOf(c.call, RunNormIsa(c.call, isa))).dump(),
                nlohmann::json(c.digests).dump())
          << c.name;
    }
  }
}

TEST(NormDigests, SeeOneChangedEps) {
  NormDigestCase c = Load().front();
  c.call.eps *= 2;
  EXPECT_NE(DigestsOf(c.call, RunNormCpu(c.call)), c.digests);
}

}  // namespace
}  // namespace rlk::test
