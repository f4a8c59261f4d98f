#include "kernels/builtin.h"

#include "gtest/gtest.h"
#include "kernels/arith/known_answer.h"

namespace rlk {
namespace {

TEST(RegisterBuiltin, OffersTheHostBackendsAfterTheirKnownAnswers) {
  Registry registry;
  RegisterBuiltin({.cuda_reason = "no driver", .backends = {}}, registry);
  for (Backend backend : {Backend::kCpu, Backend::kGolden}) {
    EXPECT_TRUE(registry.backend(backend).available) << registry.backend(backend).reason;
    EXPECT_EQ(registry.backend(backend).known_answers_passed, arith::kKnownAnswerCount);
  }
  for (Backend backend : {Backend::kCuda, Backend::kCudaSm90}) {
    EXPECT_FALSE(registry.backend(backend).available);
    EXPECT_FALSE(registry.backend(backend).failed_to_load) << "no device is no failed load";
    EXPECT_EQ(registry.backend(backend).reason, "no driver");
  }
}

TEST(RegisterBuiltin, OffersOnlyTheBackendsThatWereAsked) {
  Registry registry;
  RegisterBuiltin({.cuda_reason = "no driver", .backends = {Backend::kCpu}}, registry);
  EXPECT_TRUE(registry.backend(Backend::kCpu).available);
  for (Backend backend : {Backend::kGolden, Backend::kCuda, Backend::kCudaSm90}) {
    EXPECT_FALSE(registry.backend(backend).available);
    EXPECT_EQ(registry.backend(backend).reason, "not offered: --backends");
  }
}

TEST(RegisterBuiltin, TheDefaultContractOfEveryMethodRunsOnTheCpu) {
  Registry registry;
  RegisterBuiltin({}, registry);
  ASSERT_GE(registry.methods().size(), 2u);
  for (const auto& method : registry.methods()) {
    const MethodDecl& decl = method->decl;
    bool offered = false;
    for (const Variant& variant : decl.variants) {
      for (const ContractClaim& claim : variant.contracts) {
        offered |= variant.backend == Backend::kCpu && claim.contract == decl.contracts[0].id;
      }
    }
    EXPECT_TRUE(offered) << decl.method;
    EXPECT_NE(decl.golden, nullptr) << decl.method;
    for (const Contract& contract : decl.contracts) {
      EXPECT_FALSE(contract.arithmetic.empty()) << contract.id;
    }
  }
}

}  // namespace
}  // namespace rlk
