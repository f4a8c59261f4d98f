// The stored digests of the BF16 linear and of AdaLN, recomputed with every instruction set.
#include "gtest/gtest.h"
#include "tests/ops/adaln_projection_3mod/bf16_digest.h"
#include "tests/support/golden_json.h"

namespace rlk::test {
namespace {

OpOutputs RunIsa(const OpCall& call, Isa isa) {
  if (call.method.rfind("adaln", 0) == 0) return RunAdalnIsa(call, isa);
  return RunOpWith(call, [&](const KernelArgs& args) {
    if (call.method == kLinearMethods[0]) return RunDetLinearBf16ForwardCpu(args, isa);
    return call.method == kLinearMethods[1] ? RunDetLinearBf16BackwardInputCpu(args, isa)
                                            : RunDetLinearBf16BackwardWeightCpu(args, isa);
  });
}

TEST(Bf16Digests, AreTheStoredOnes) {
  const std::vector<Bf16DigestCase> cases = Bf16DigestCases(LoadGolden("digests_bf16.json"));
  EXPECT_GE(cases.size(), 40u);
  for (const Bf16DigestCase& c : cases) {
    for (Isa isa : AvailableIsas()) {
      const auto digests = OpDigests(c.call, RunIsa(c.call, isa));
      EXPECT_EQ(nlohmann::json(digests).dump(), nlohmann::json(c.digests).dump()) << c.name;
    }
  }
}

TEST(Bf16Digests, SeeOneChangedWeight) {
  Bf16DigestCase c = Bf16DigestCases(LoadGolden("digests_bf16.json")).front();
  c.call.inputs["weight"].bytes[1] ^= std::byte{1};
  EXPECT_NE(OpDigests(c.call, RunOpCpu(c.call)), c.digests);
}

}  // namespace
}  // namespace rlk::test
