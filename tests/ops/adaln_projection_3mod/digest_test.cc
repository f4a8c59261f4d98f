// The stored digests of the BF16 linear and of AdaLN, recomputed with every instruction set.
#include "gtest/gtest.h"
#include "tests/ops/adaln_projection_3mod/bf16_digest.h"
#include "tests/support/golden_json.h"

namespace rlk::test {
namespace {

OpOutputs RunIsa(const OpCall& call, Isa isa) {
  if (call.method.rfind("adaln", 0) == 0) return RunAdalnIsa(call, isa);
  return RunBf16LinearIsa(call, isa);
}

class Bf16Digests : public testing::TestWithParam<const char*> {};

TEST_P(Bf16Digests, AreTheStoredOnes) {
  const std::vector<Bf16DigestCase> cases = Bf16DigestCases(LoadGolden(GetParam()));
  EXPECT_GE(cases.size(), 40u);
  for (const Bf16DigestCase& c : cases) {
    for (Isa isa : AvailableIsas()) {
      const auto digests = OpDigests(c.call, RunIsa(c.call, isa));
      EXPECT_EQ(nlohmann::json(digests).dump(), nlohmann::json(c.digests).dump()) << c.name;
    }
  }
}

TEST_P(Bf16Digests, SeeOneChangedWeight) {
  Bf16DigestCase c = Bf16DigestCases(LoadGolden(GetParam())).front();
  c.call.inputs["weight"].bytes[1] ^= std::byte{1};
  EXPECT_NE(OpDigests(c.call, RunOpCpu(c.call)), c.digests);
}

INSTANTIATE_TEST_SUITE_P(Files, Bf16Digests,
                         testing::Values("digests_bf16.json", "digests_bf16_k128.json"));

}  // namespace
}  // namespace rlk::test
