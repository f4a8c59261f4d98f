#include "kernels/ops/timestep_mlp_fp32/timestep_mlp_fp32.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "kernels/registry/golden_variant.h"
#if defined(RLK_WITH_CUDA)
#include "kernels/ops/timestep_mlp_fp32/cuda_variants.h"
#endif

namespace rlk {
namespace {

using timestep_mlp::kPortableContract;
using timestep_mlp::Sizes;

constexpr char kGoldenContract[] = "timestep_mlp_fp32/golden-f64";

constexpr char kLinear[] =
    "F32 throughout; linear, d_input and the parameter gradients are those of contract "
    "det_linear/h3-det-linear-v1, silu and dsilu those of the function set f32-v1. pre = "
    "linear(x, w1, b1); h = silu(pre). ";
constexpr char kForward[] = "y = linear(h, w2, b2).";
constexpr char kBackward[] =
    "dh = d_input(grad_y, w2); dpre = mul(dh, dsilu(pre)); grad_x = d_input(dpre, w1); grad_w2 and "
    "grad_b2 from (grad_y, h), grad_w1 and grad_b1 from (dpre, x). pre is the saved or the "
    "recomputed one: the bits are equal.";
constexpr char kGolden[] =
    "FP64, rounded once to the dtype of the output. The reference of accuracy; its bits depend on "
    "the C library.";

absl::Status GoldenForward(const KernelArgs& args) {
  return LaunchGoldenRounded(&TimestepMlpForwardGolden, args);
}
absl::Status GoldenBackward(const KernelArgs& args) {
  return LaunchGoldenRounded(&TimestepMlpBackwardGolden, args);
}

absl::Status Validate(const KernelArgs& args) {
  const Sizes sizes = timestep_mlp::ReadSizes(args);
  const struct {
    const char *field, *name;
    int64_t value, multiple;
  } checks[] = {{"x", "T", sizes.rows, 1},
                {"w1", "K", sizes.inputs, 4},
                {"w1", "M", sizes.hidden, 4},
                {"w2", "N", sizes.outputs, 1}};
  for (const auto& check : checks) {
    if (check.value >= 1 && check.value % check.multiple == 0) continue;
    return InvalidArgument(
        Reason::kShapeMismatch, check.field, absl::StrCat(check.name, " = ", check.value),
        check.multiple == 1 ? absl::StrCat(check.name, " >= 1")
                            : absl::StrCat("a multiple of 4, ", check.name, " >= 4"),
        check.multiple == 1 ? "the tensor is empty" : "rows must be whole 16-byte chunks");
  }
  return absl::OkStatus();
}

MethodDecl Declare(bool backward) {
  MethodDecl decl;
  decl.method = backward ? "timestep_mlp_fp32.backward" : "timestep_mlp_fp32.forward";
  decl.inputs = {"x", "w1", "b1", "w2"};
  if (backward) {
    decl.inputs.insert(decl.inputs.end(), {"grad_y", "pre"});
    decl.outputs = {"grad_x", "grad_w1", "grad_b1", "grad_w2", "grad_b2"};
  } else {
    decl.inputs.push_back("b2");
    decl.outputs = {"y", "pre"};
  }
  decl.contracts = {{kPortableContract, absl::StrCat(kLinear, backward ? kBackward : kForward)},
                    {kGoldenContract, kGolden}};
#if defined(RLK_WITH_CUDA)
  decl.variants = TimestepMlpCudaVariants(backward);
#endif
  Variant cpu;
  cpu.backend = Backend::kCpu;
  cpu.kernel = backward ? "timestep_mlp_backward_cpu" : "timestep_mlp_forward_cpu";
  cpu.launch = backward ? &LaunchTimestepMlpBackwardCpu : &LaunchTimestepMlpForwardCpu;
  cpu.contracts = {{kPortableContract, ClaimLevel::kL3Portable}};
  Variant golden;
  golden.backend = Backend::kGolden;
  golden.kernel = backward ? "timestep_mlp_backward_golden" : "timestep_mlp_forward_golden";
  golden.launch = backward ? &GoldenBackward : &GoldenForward;
  golden.contracts = {{kGoldenContract, ClaimLevel::kL1BatchInvariant}};
  decl.variants.push_back(std::move(cpu));
  decl.variants.push_back(std::move(golden));
  decl.validate = &Validate;
  decl.golden = backward ? &TimestepMlpBackwardGolden : &TimestepMlpForwardGolden;
  return decl;
}

}  // namespace

timestep_mlp::Sizes timestep_mlp::ReadSizes(const KernelArgs& args) {
  return {args.Input("x").shape[0], args.Input("x").shape[1], args.Input("w1").shape[0],
          args.Input("w2").shape[0]};
}

std::vector<MethodDecl> DeclareTimestepMlpFp32() {
  std::vector<MethodDecl> decls;
  decls.push_back(Declare(false));
  decls.push_back(Declare(true));
  return decls;
}

}  // namespace rlk
