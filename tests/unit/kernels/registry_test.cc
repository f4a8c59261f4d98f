#include "kernels/registry/registry.h"

#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/core/status.h"

namespace rlk {
namespace {

using testing::HasSubstr;

absl::Status Launch(const KernelArgs&) { return absl::OkStatus(); }

MethodDecl Decl() {
  MethodDecl decl;
  decl.method = "op.forward";
  decl.inputs = {"x", "weight"};
  decl.attributes = {"eps"};
  decl.outputs = {"y"};
  decl.contracts = {{"op/portable-v1", "words"}, {"op/other-v1", "words"}};
  Variant variant;
  variant.kernel = "op_cpu";
  variant.contracts = {{"op/portable-v1", ClaimLevel::kL3Portable}};
  variant.launch = &Launch;
  decl.variants = {variant};
  return decl;
}

MethodSignature Signature() {
  MethodSignature signature;
  signature.method = "op.forward";
  signature.rpc = "/rlk.v1.OpService/OpForward";
  for (const char* name : {"x", "weight"}) signature.inputs.emplace_back().name = name;
  signature.attributes.emplace_back().name = "eps";
  signature.outputs.emplace_back().name = "y";
  return signature;
}

TEST(Registry, FindsAMethodByNameAndByRpcAfterBind) {
  Registry registry;
  registry.Add(Decl());
  ASSERT_TRUE(registry.Bind({Signature()}).ok());
  const Method* method = registry.Find("op.forward");
  ASSERT_NE(method, nullptr);
  EXPECT_EQ(registry.FindRpc("/rlk.v1.OpService/OpForward"), method);
  EXPECT_EQ(method->signature.inputs[1].name, "weight");
  EXPECT_TRUE(method->HasContract("op/other-v1"));
  EXPECT_FALSE(method->HasContract("op/portable-v2"));
  EXPECT_EQ(registry.Find("op.backward"), nullptr);
  EXPECT_EQ(registry.FindRpc("op.forward"), nullptr);
}

struct Disagreement {
  const char* name;
  std::function<void(MethodDecl&, MethodSignature&)> break_it;
  std::vector<std::string> said;
};

TEST(Registry, BindNamesBothSidesOfEachDisagreement) {
  const std::vector<Disagreement> cases = {
      {"input renamed",
       [](MethodDecl&, MethodSignature& s) { s.inputs[1].name = "w"; },
       {"op.forward: inputs are [x, weight] in the registry and [x, w] in the proto"}},
      {"input missing in proto",
       [](MethodDecl&, MethodSignature& s) { s.inputs.pop_back(); },
       {"[x, weight] in the registry and [x] in the proto"}},
      {"inputs in another order",
       [](MethodDecl& d, MethodSignature&) { std::swap(d.inputs[0], d.inputs[1]); },
       {"[weight, x] in the registry and [x, weight] in the proto"}},
      {"attribute missing in registry",
       [](MethodDecl& d, MethodSignature&) { d.attributes.clear(); },
       {"attributes are [] in the registry and [eps] in the proto"}},
      {"output renamed",
       [](MethodDecl& d, MethodSignature&) { d.outputs[0] = "z"; },
       {"outputs are [z] in the registry and [y] in the proto"}},
      {"method on one side only",
       [](MethodDecl&, MethodSignature& s) { s.method = "op.backward"; },
       {"op.forward: in the registry, but no RPC of the proto",
        "op.backward: an RPC of the proto (/rlk.v1.OpService/OpForward), but not in the registry"}},
      {"two at once",
       [](MethodDecl& d, MethodSignature& s) {
         d.outputs[0] = "z";
         s.attributes[0].name = "epsilon";
       },
       {"outputs are [z]", "[epsilon] in the proto"}},
      {"contract of another operator",
       [](MethodDecl& d, MethodSignature&) { d.contracts[1].id = "other/portable-v1"; },
       {"contract other/portable-v1 does not begin with op/"}},
      {"contract twice",
       [](MethodDecl& d, MethodSignature&) { d.contracts[1].id = "op/portable-v1"; },
       {"contract op/portable-v1 is declared twice"}},
      {"no contract",
       [](MethodDecl& d, MethodSignature&) {
         d.contracts.clear();
         d.variants.clear();
       },
       {"declares no contract"}},
      {"variant offers an unknown contract",
       [](MethodDecl& d, MethodSignature&) { d.variants[0].contracts[0].contract = "op/x-v1"; },
       {"variant op_cpu offers op/x-v1, which the method does not declare"}},
      {"contract of the dtypes of no input",
       [](MethodDecl& d, MethodSignature&) {
         d.contracts[1].dtypes = {DType::kF32};
         d.contracts[1].dtype_of = "q";
       },
       {"contract op/other-v1 depends on the dtype of q, which is no input"}},
      {"resolves what is no attribute",
       [](MethodDecl& d, MethodSignature&) {
         d.resolved_attribute = "parts";
         d.resolve = [](const KernelArgs&) { return int64_t{1}; };
       },
       {"resolves parts, which is no attribute"}},
      {"variant without launch",
       [](MethodDecl& d, MethodSignature&) { d.variants[0].launch = nullptr; },
       {"variant op_cpu has no launch function"}},
  };
  for (const Disagreement& c : cases) {
    SCOPED_TRACE(c.name);
    MethodDecl decl = Decl();
    MethodSignature signature = Signature();
    c.break_it(decl, signature);
    Registry registry;
    registry.Add(std::move(decl));
    const absl::Status status = registry.Bind({signature});
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    for (const std::string& said : c.said) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(said));
    }
    EXPECT_EQ(registry.Find("op.forward"), nullptr);
  }
}

TEST(Registry, RefusesAMethodThatIsThereTwice) {
  Registry registry;
  registry.Add(Decl());
  registry.Add(Decl());
  EXPECT_THAT(std::string(registry.Bind({Signature()}).message()),
              HasSubstr("op.forward: twice in the registry"));
  Registry other;
  other.Add(Decl());
  EXPECT_THAT(std::string(other.Bind({Signature(), Signature()}).message()),
              HasSubstr("op.forward: twice in the proto"));
}

TEST(Registry, IsReadOnlyAfterBind) {
  Registry registry;
  registry.Add(Decl());
  ASSERT_TRUE(registry.Bind({Signature()}).ok());
  EXPECT_DEATH(registry.Add(Decl()), "frozen");
  EXPECT_DEATH(registry.SetBackend(Backend::kCpu, {}), "frozen");
}

}  // namespace
}  // namespace rlk
