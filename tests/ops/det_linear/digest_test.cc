// The stored L3 digests, recomputed by the cpu backend with every instruction set.
#include "gtest/gtest.h"
#include "tests/ops/det_linear/linear_digest.h"
#include "tests/support/golden_json.h"

namespace rlk::test {
namespace {

TEST(LinearDigests, AreTheStoredOnes) {
  const nlohmann::json golden = LoadGolden("digests_det_linear.json");
  const std::vector<LinearDigestCase> cases = LinearDigestCases(golden);
  EXPECT_GE(cases.size(), 40u);
  for (const LinearDigestCase& c : cases) {
    for (Isa isa : AvailableIsas()) {
      const auto digests = OpDigests(c.call, RunLinearIsa(c.call, isa));
      EXPECT_EQ(nlohmann::json(digests).dump(), nlohmann::json(c.digests).dump()) << c.name;
    }
  }
}

TEST(LinearDigests, SeeOneChangedWeight) {
  LinearDigestCase c = LinearDigestCases(LoadGolden("digests_det_linear.json")).front();
  c.call.inputs["weight"].bytes[2] ^= std::byte{1};
  EXPECT_NE(OpDigests(c.call, RunOpCpu(c.call)), c.digests);
}

}  // namespace
}  // namespace rlk::test
