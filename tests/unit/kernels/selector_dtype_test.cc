// The contracts of a method that are for some dtypes only.
#include <string>

#include "gtest/gtest.h"
#include "kernels/core/status.h"
#include "kernels/registry/registry.h"
#include "kernels/registry/selector.h"

namespace rlk {
namespace {

constexpr char kGolden[] = "op/golden-f64";

Variant MakeVariant(Backend backend, const char* kernel, std::vector<ContractClaim> contracts) {
  Variant variant;
  variant.backend = backend;
  variant.kernel = kernel;
  variant.contracts = std::move(contracts);
  variant.launch = [](const KernelArgs&) { return absl::OkStatus(); };
  return variant;
}

// Contracts of one dtype each, of which the backends offer two.
TEST(Select, TheDefaultIsTheFirstContractOfTheDtype) {
  MethodDecl decl;
  decl.method = "op.forward";
  decl.inputs = {"x"};
  decl.contracts = {{"op/f32-v1", "", "x", {DType::kF32}},
                    {"op/bf16-v1", "", "x", {DType::kBF16}},
                    {"op/f16-v1", "", "x", {DType::kF16}},
                    {kGolden, ""}};
  decl.variants = {
      MakeVariant(
          Backend::kCpu, "op_cpu",
          {{"op/f32-v1", ClaimLevel::kL3Portable}, {"op/bf16-v1", ClaimLevel::kL3Portable}}),
      MakeVariant(Backend::kGolden, "op_golden", {{kGolden, ClaimLevel::kL1BatchInvariant}})};
  MethodSignature signature;
  signature.method = decl.method;
  signature.inputs.emplace_back().name = "x";
  Registry registry;
  for (Backend backend : {Backend::kCpu, Backend::kGolden}) {
    registry.SetBackend(backend, {true, false, "", 0});
  }
  registry.Add(decl);
  ASSERT_TRUE(registry.Bind({signature}).ok());
  const struct {
    DType dtype;
    const char *contract, *backend, *chosen, *allowed;
  } cases[] = {
      {DType::kF32, "", "", "op/f32-v1", ""},
      {DType::kBF16, "", "", "op/bf16-v1", ""},
      {DType::kBF16, "", "cpu", "op/bf16-v1", ""},
      {DType::kBF16, "", "golden", kGolden, ""},
      {DType::kBF16, "op/bf16-v1", "", "op/bf16-v1", ""},
      {DType::kBF16, "op/f32-v1", "", nullptr, "F32"},
      {DType::kF64, "", "", nullptr, "F32, BF16, F16"},
  };
  for (const auto& c : cases) {
    const TensorView x{c.dtype, {1}, {1}, nullptr};
    const int32_t begin[] = {0, 1};
    KernelArgs args;
    args.signature = &registry.Find("op.forward")->signature;
    args.inputs = {&x, 1};
    args.input_begin = begin;
    SelectionQuery query;
    query.contract = c.contract;
    query.backend = c.backend;
    const absl::StatusOr<Selection> selection =
        Select(registry, *registry.Find("op.forward"), query, args);
    SCOPED_TRACE(std::string(DTypeName(c.dtype)) + " " + c.contract + " " + c.backend);
    if (c.chosen != nullptr) {
      ASSERT_TRUE(selection.ok()) << selection.status();
      EXPECT_EQ(selection->contract->id, c.chosen);
      continue;
    }
    const ErrorDetail detail = GetErrorDetail(selection.status()).value_or(ErrorDetail{});
    EXPECT_EQ(selection.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(detail.reason, Reason::kDtypeNotAllowed);
    EXPECT_EQ(detail.field, "x");
    EXPECT_EQ(detail.value, DTypeName(c.dtype));
    EXPECT_EQ(detail.allowed, c.allowed);
  }
}

}  // namespace
}  // namespace rlk
