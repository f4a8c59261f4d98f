#include "kernels/ops/rms_norm/rms_norm.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/arith/row_sum.h"
#include "kernels/core/status.h"
#include "kernels/registry/golden_variant.h"
#if defined(RLK_WITH_CUDA)
#include "kernels/ops/rms_norm/cuda_variants.h"
#endif

namespace rlk {
namespace {

using rms_norm::Activation;
using rms_norm::Convention;
using rms_norm::Fold;
using rms_norm::Problem;

// rlk.v1.GateActivation.
constexpr int64_t kGateSigmoid = 3;

bool HasName(const std::vector<TensorSpec>& specs, std::string_view name) {
  return std::any_of(specs.begin(), specs.end(),
                     [&](const TensorSpec& spec) { return spec.name == name; });
}

bool HasAttribute(const MethodSignature& signature, std::string_view name) {
  return std::any_of(signature.attributes.begin(), signature.attributes.end(),
                     [&](const AttributeSpec& spec) { return spec.name == name; });
}

bool IsHf(std::string_view contract) { return contract.ends_with("/hf-v1"); }

constexpr char kCommon[] =
    "FP32, round to nearest even, subnormals kept, functions f32-v1; rowsum is rowsum-v1. "
    "r = rsqrt(add(div(rowsum(x, x), float(H)), eps)), correctly rounded; xh = mul(x32, r). ";
constexpr char kPlainForward[] =
    "wf = w32, plus weight_offset in FP32 only if that is not 0; y = cast(mul(xh, wf)); rstd = r.";
constexpr char kHfForward[] =
    "n = cast(xh); y = cast(mul(w32, n32)): cast before weight. weight has the dtype of x and "
    "weight_offset is 0. rstd = r.";
constexpr char kGatedForward[] =
    "wf as in rms_norm; act is silu(z) = mul(z, sigmoid(z)) or sigmoid(z); "
    "y = cast(mul(mul(xh, wf), act(z32))); rstd = r.";
constexpr char kGatedHfForward[] =
    "n = cast(xh); m = mul(w32, n32), cast if weight has the dtype of x; "
    "y = cast(mul(m32, silu(z32))). silu only, weight_offset is 0. rstd = r.";
constexpr char kGradX[] =
    " k = div(rowsum(g, xh), float(H)); grad_x = cast(mul(r, fma(-xh, k, g))); grad_weight = one "
    "cast of the fold of c over rows, dweight_acc = that fold in FP32. ";
constexpr char kPlainBackward[] = "g = mul(dy32, wf); c = mul(dy32, xh).";
constexpr char kHfBackward[] =
    "n = cast(xh); g = cast(mul(dy32, w32)); c = cast(mul(dy32, n32)), casts to the dtype of x.";
constexpr char kGatedBackward[] =
    "a = act(z32); b = mul(dy32, a); g = mul(b, wf); c = mul(b, xh); "
    "grad_gate = cast(mul(mul(dy32, mul(xh, wf)), act'(z))).";
constexpr char kGatedHfBackward[] =
    "s = silu(z32); dm = mul(dy32, s), m = mul(w32, n32) and c = mul(dm32, n32) are cast if weight "
    "has the dtype of x; g = cast(mul(w32, dm32)); "
    "grad_gate = cast(mul(mul(mul(dy32, m32), sigmoid(z)), fma(z32, sub(1, sigmoid(z)), 1))).";
constexpr char kLeftFold[] =
    "Fold: A = carry or +0; rows ascending A = add(A, c). Can be carried at any row.";
constexpr char kChunkFold[] =
    "Fold: T = carry or +0; for each block of 128 rows: P = +0, rows ascending P = add(P, c), "
    "T = add(T, P). Can be carried at multiples of 128 rows.";
constexpr char kGolden[] =
    "FP64, rounded once to the dtype of the output. The reference of accuracy; its bits depend on "
    "the C library.";

// The contracts of a method, the default first.
std::vector<Contract> Contracts(const std::string& op, bool backward, bool gated, bool with_hf) {
  std::vector<Contract> contracts;
  const auto text = [&](const char* forward, const char* gradient, const char* fold) {
    return backward ? absl::StrCat(kCommon, gradient, kGradX, fold)
                    : absl::StrCat(kCommon, forward);
  };
  const char* forward = gated ? kGatedForward : kPlainForward;
  const char* gradient = gated ? kGatedBackward : kPlainBackward;
  contracts.push_back({op + "/leftfold-v1", text(forward, gradient, kLeftFold)});
  contracts.push_back({op + "/chunk128-v1", text(forward, gradient, kChunkFold)});
  if (with_hf) {
    contracts.push_back({op + "/hf-v1", text(gated ? kGatedHfForward : kHfForward,
                                             gated ? kGatedHfBackward : kHfBackward, kLeftFold)});
  }
  contracts.push_back({op + "/golden-f64", kGolden});
  return contracts;
}

absl::Status LaunchForwardGolden(const KernelArgs& args) {
  return LaunchGoldenRounded(&RmsNormForwardGolden, args);
}
absl::Status LaunchBackwardGolden(const KernelArgs& args) {
  return LaunchGoldenRounded(&RmsNormBackwardGolden, args);
}

std::vector<Variant> HostVariants(const std::string& op, const std::vector<Contract>& contracts,
                                  bool backward) {
  Variant cpu;
  cpu.backend = Backend::kCpu;
  cpu.kernel = backward ? "rms_norm_backward_cpu" : "rms_norm_forward_cpu";
  cpu.launch = backward ? &LaunchRmsNormBackwardCpu : &LaunchRmsNormForwardCpu;
  for (const Contract& contract : contracts) {
    if (contract.id.ends_with("/golden-f64")) continue;
    cpu.contracts.push_back({contract.id, ClaimLevel::kL3Portable});
  }
  Variant golden;
  golden.backend = Backend::kGolden;
  golden.kernel = backward ? "rms_norm_backward_golden" : "rms_norm_forward_golden";
  golden.launch = backward ? &LaunchBackwardGolden : &LaunchForwardGolden;
  golden.contracts = {{op + "/golden-f64", ClaimLevel::kL1BatchInvariant}};
  return {std::move(cpu), std::move(golden)};
}

// What the descriptors cannot say.
absl::Status Validate(const KernelArgs& args) {
  const TensorView& x = args.Input("x");
  const int64_t length = x.shape[x.shape.rank() - 1];
  if (length < 1 || length > arith::kRowSumLengthMax) {
    return InvalidArgument(Reason::kShapeMismatch, "x", absl::StrCat("H = ", length),
                           absl::StrCat("1 <= H <= ", arith::kRowSumLengthMax),
                           "the last dimension is out of range");
  }
  const MethodSignature& signature = *args.signature;
  if (HasAttribute(signature, "rows_before") && args.contract.ends_with("/chunk128-v1") &&
      args.I64("rows_before") % rms_norm::kChunkRows != 0) {
    return InvalidArgument(
        Reason::kAttributeOutOfRange, "rows_before", std::to_string(args.I64("rows_before")),
        "a multiple of 128",
        absl::StrCat("contract ", std::string(args.contract), " carries whole blocks of rows"));
  }
  if (!IsHf(args.contract)) return absl::OkStatus();
  if (HasAttribute(signature, "weight_offset") && args.F32("weight_offset") != 0.0f) {
    return InvalidArgument(Reason::kAttributeOutOfRange, "weight_offset",
                           absl::StrCat(args.F32("weight_offset")), "0",
                           "contract hf-v1 has no weight offset");
  }
  const bool gated = HasName(signature.inputs, "gate");
  if (gated && args.I64("activation") == kGateSigmoid) {
    return InvalidArgument(Reason::kAttributeOutOfRange, "activation", "sigmoid", "silu, swish",
                           "contract hf-v1 has no other activation");
  }
  const TensorView& weight = args.Input("weight");
  if (!gated && weight.dtype != x.dtype) {
    return InvalidArgument(Reason::kDtypeNotAllowed, "weight", DTypeName(weight.dtype),
                           DTypeName(x.dtype), "contract hf-v1 takes a weight of x's dtype");
  }
  return absl::OkStatus();
}

MethodDecl Declare(const std::string& op, bool backward) {
  const bool gated = op == "rms_norm_gated";
  const bool fixed_offset = op == "qwen3_next_rms_norm";
  MethodDecl decl;
  decl.method = op + (backward ? ".backward" : ".forward");
  decl.inputs = {"x", "weight"};
  if (gated) decl.inputs.push_back("gate");
  if (backward) {
    for (const char* name : {"grad_y", "rstd", "dweight_acc_in"}) decl.inputs.push_back(name);
  }
  decl.attributes = {"eps"};
  if (!fixed_offset) decl.attributes.push_back("weight_offset");
  if (backward) decl.attributes.push_back("rows_before");
  if (gated) decl.attributes.push_back("activation");
  if (backward) {
    decl.outputs = {"grad_x", "grad_weight"};
    if (gated) decl.outputs.push_back("grad_gate");
    decl.outputs.push_back("dweight_acc");
  } else {
    decl.outputs = {"y", "rstd"};
  }
  decl.contracts = Contracts(op, backward, gated, !fixed_offset);
#if defined(RLK_WITH_CUDA)
  decl.variants = RmsNormCudaVariants(decl.contracts, backward);
#endif
  for (Variant& variant : HostVariants(op, decl.contracts, backward)) {
    decl.variants.push_back(std::move(variant));
  }
  decl.validate = &Validate;
  decl.golden = backward ? &RmsNormBackwardGolden : &RmsNormForwardGolden;
  return decl;
}

}  // namespace

Problem rms_norm::ReadProblem(const KernelArgs& args) {
  const MethodSignature& signature = *args.signature;
  const TensorView& x = args.Input("x");
  const bool gated = HasName(signature.inputs, "gate");
  const bool hf = IsHf(args.contract);
  Problem problem;
  problem.convention = gated ? (hf ? Convention::kGatedHf : Convention::kGated)
                             : (hf ? Convention::kHf : Convention::kPlain);
  problem.fold = args.contract.ends_with("/chunk128-v1") ? Fold::kChunk128 : Fold::kLeft;
  if (gated && args.I64("activation") == kGateSigmoid) problem.activation = Activation::kSigmoid;
  problem.round_weighted =
      problem.convention == Convention::kGatedHf && args.Input("weight").dtype == x.dtype;
  problem.eps = args.F32("eps");
  problem.weight_offset =
      HasAttribute(signature, "weight_offset") ? args.F32("weight_offset") : 1.0f;
  problem.length = x.shape[x.shape.rank() - 1];
  problem.rows = x.elements() / problem.length;
  return problem;
}

std::vector<MethodDecl> DeclareRmsNorm() {
  std::vector<MethodDecl> decls;
  for (const char* op : {"rms_norm", "qwen3_next_rms_norm", "rms_norm_gated"}) {
    decls.push_back(Declare(op, false));
    decls.push_back(Declare(op, true));
  }
  return decls;
}

}  // namespace rlk
