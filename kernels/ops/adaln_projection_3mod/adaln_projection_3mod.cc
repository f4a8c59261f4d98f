#include "kernels/ops/adaln_projection_3mod/adaln_projection_3mod.h"

#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "kernels/linear/k128.h"
#include "kernels/registry/golden_variant.h"
#if defined(RLK_WITH_CUDA)
#include "kernels/ops/adaln_projection_3mod/cuda_variants.h"
#endif

namespace rlk {
namespace {

using adaln::kH3Contract;
using adaln::Kind;
using adaln::kK128Contract;
using adaln::kPortableContract;

constexpr char kGoldenContract[] = "adaln_projection_3mod/golden-f64";

constexpr char kPortableSilu[] = "a = silu(temb), FP32, of the function set f32-v1; ";
constexpr char kH3Silu[] =
    "a = div(temb, add(1, expf(-temb))), FP32, expf of CUDA 13.0's libdevice; ";
constexpr char kForward[] =
    "ab = cast(a) to the dtype of weight, the only rounding before the sums; table = "
    "det_linear(ab, weight, bias) in the dtype of weight: contract ";
constexpr char kH3Linear[] =
    "h3-det-linear-bf16-mma-v1 for BF16 weights, h3-det-linear-v1 for F32. ";
constexpr char kK128Linear[] = "bf16-k128-v1, with its fold_parts. ";
constexpr char kLayout[] =
    "Channel m 6H + c H + h of row t is element (3t + m, h) of chunk c, in the order shift_msa, "
    "scale_msa, gate_msa, shift_mlp, scale_mlp, gate_mlp.";
constexpr char kBackward[] =
    "g = the six gradients in the layout of the table, up-converted exactly, zero where absent; "
    "grad_weight and grad_bias from (g, ab), d_act = d_input(g, weight) in FP32, as in the "
    "backward of the same det_linear contract; the cast is passed straight through; ";
constexpr char kPortableVjp[] = "grad_temb = mul(d_act, dsilu(temb)).";
constexpr char kH3Vjp[] =
    "s = div(1, add(1, expf(-z))), grad_temb = mul(d_act, mul(s, add(1, mul(z, sub(1, s))))).";
constexpr char kGolden[] =
    "FP64 after the FP32 SiLU of portable-v1 and its cast, rounded once to the dtype of the "
    "output. "
    "The reference of accuracy; its bits depend on the C library.";

absl::Status GoldenForward(const KernelArgs& args) {
  return LaunchGoldenRounded(&AdalnForwardGolden, args);
}
absl::Status GoldenBackward(const KernelArgs& args) {
  return LaunchGoldenRounded(&AdalnBackwardGolden, args);
}

bool IsBackward(const KernelArgs& args) {
  return args.signature->direction == Direction::kBackward;
}

// Of the product that fold_parts is for.
int64_t ReductionLength(const KernelArgs& args) {
  const linear::Shape shape = adaln::ReadShape(args);
  return IsBackward(args) ? shape.outputs : shape.inputs;
}

absl::Status CheckFoldParts(const KernelArgs& args) {
  const int64_t parts = args.I64("fold_parts");
  const auto refuse = [&](std::string allowed, std::string message) {
    return InvalidArgument(Reason::kAttributeOutOfRange, "fold_parts", std::to_string(parts),
                           allowed, message);
  };
  if (args.contract != kK128Contract) {
    if (parts <= 1) return absl::OkStatus();
    return refuse("0, 1", absl::StrCat("contract ", std::string(args.contract), " has one part"));
  }
  const int64_t length = ReductionLength(args);
  if (parts == 0 || linear::K128PartsFit(parts, length)) return absl::OkStatus();
  const char* allowed = "0, 1";
  if (linear::K128PartsFit(2, length)) allowed = "0, 1, 2";
  if (linear::K128PartsFit(4, length)) allowed = "0, 1, 2, 4";
  return refuse(allowed, absl::StrCat("a part is whole chunks of 128: the reduction has ", length));
}

absl::Status Validate(const KernelArgs& args) {
  const linear::Shape shape = adaln::ReadShape(args);
  const auto refuse = [](const char* field, std::string value, const char* allowed,
                         const char* message) {
    return InvalidArgument(Reason::kShapeMismatch, field, value, allowed, message);
  };
  if (shape.rows < 1) return refuse("temb", "T = 0", "T >= 1", "there are no rows");
  if (shape.outputs < 1) return refuse("weight", "H = 0", "H >= 1", "there are no outputs");
  const bool bf16 = args.Input("weight").dtype == DType::kBF16;
  if (shape.inputs < 1 || shape.inputs % (bf16 ? 8 : 4) != 0) {
    return refuse("weight", absl::StrCat("D = ", shape.inputs),
                  bf16 ? "a multiple of 8, D >= 8" : "a multiple of 4, D >= 4",
                  "rows must be whole 16-byte chunks");
  }
  return CheckFoldParts(args);
}

// At least one gradient, and all those given of one dtype.
absl::Status ValidateBackward(const KernelArgs& args) {
  RLK_RETURN_IF_ERROR(Validate(args));
  const TensorView* first = nullptr;
  for (const char* name : adaln::kGradientNames) {
    const TensorView& grad = args.Input(name);
    if (!grad.present()) continue;
    if (first == nullptr) first = &grad;
    if (grad.dtype == first->dtype) continue;
    return InvalidArgument(Reason::kDtypeNotAllowed, name, DTypeName(grad.dtype),
                           DTypeName(first->dtype), "the gradients given must have one dtype");
  }
  if (first != nullptr) return absl::OkStatus();
  return InvalidArgument(Reason::kMissingTensor, adaln::kGradientNames[0], "absent", "a tensor",
                         "at least one of the six gradients must be given");
}

std::vector<Contract> Contracts(Kind kind, bool offer_h3) {
  std::vector<Contract> contracts;
  const bool backward = kind == Kind::kBackward;
  const auto text = [&](const char* silu, const char* product, const char* vjp) {
    return absl::StrCat(silu, kForward, product, backward ? kBackward : kLayout,
                        backward ? vjp : "");
  };
  contracts.push_back({kPortableContract, text(kPortableSilu, kH3Linear, kPortableVjp)});
  contracts.push_back(
      {kK128Contract, text(kPortableSilu, kK128Linear, kPortableVjp), "weight", {DType::kBF16}});
  if (offer_h3) contracts.push_back({kH3Contract, text(kH3Silu, kH3Linear, kH3Vjp)});
  contracts.push_back({kGoldenContract, kGolden});
  return contracts;
}

std::vector<Variant> HostVariants(bool backward) {
  Variant cpu;
  cpu.backend = Backend::kCpu;
  cpu.kernel = backward ? "adaln_backward_cpu" : "adaln_forward_cpu";
  cpu.launch = backward ? &LaunchAdalnBackwardCpu : &LaunchAdalnForwardCpu;
  cpu.contracts = {{kPortableContract, ClaimLevel::kL3Portable},
                   {kK128Contract, ClaimLevel::kL3Portable}};
  Variant golden;
  golden.backend = Backend::kGolden;
  golden.kernel = backward ? "adaln_backward_golden" : "adaln_forward_golden";
  golden.launch = backward ? &GoldenBackward : &GoldenForward;
  golden.contracts = {{kGoldenContract, ClaimLevel::kL1BatchInvariant}};
  return {std::move(cpu), std::move(golden)};
}

MethodDecl Declare(Kind kind, bool offer_h3) {
  const bool backward = kind == Kind::kBackward;
  MethodDecl decl;
  decl.method = backward                 ? "adaln_projection_3mod.backward"
                : kind == Kind::kForward ? "adaln_projection_3mod.forward"
                                         : "adaln_projection_3mod.forward_table";
  decl.inputs = {"temb", "weight"};
  if (backward) {
    decl.inputs.insert(decl.inputs.end(), std::begin(adaln::kGradientNames),
                       std::end(adaln::kGradientNames));
    decl.outputs = {"grad_temb", "grad_weight", "grad_bias"};
  } else {
    decl.inputs.push_back("bias");
    if (kind == Kind::kForward) {
      decl.outputs.assign(std::begin(adaln::kChunkNames), std::end(adaln::kChunkNames));
    } else {
      decl.outputs = {"table"};
    }
  }
  decl.attributes = {"fold_parts"};
  decl.contracts = Contracts(kind, offer_h3);
#if defined(RLK_WITH_CUDA)
  decl.variants = AdalnCudaVariants(backward, offer_h3);
#endif
  for (Variant& variant : HostVariants(backward)) decl.variants.push_back(std::move(variant));
  decl.validate = backward ? &ValidateBackward : &Validate;
  decl.resolved_attribute = "fold_parts";
  decl.resolve = &adaln::ReadFoldParts;
  decl.golden = backward ? &AdalnBackwardGolden : &AdalnForwardGolden;
  return decl;
}

bool HasTable(const KernelArgs& args) { return args.signature->outputs.front().name == "table"; }

}  // namespace

namespace adaln {

linear::Shape ReadShape(const KernelArgs& args) {
  const TensorView& temb = args.Input("temb");
  return {temb.shape[0], args.Input("weight").shape[0], temb.shape[1]};
}

linear::SiluKind ReadSilu(const KernelArgs& args) {
  return args.contract == kH3Contract ? linear::SiluKind::kCuda : linear::SiluKind::kPortable;
}

int64_t ReadFoldParts(const KernelArgs& args) {
  const int64_t asked = args.I64("fold_parts");
  if (args.contract == kK128Contract) return linear::K128Parts(asked, ReductionLength(args));
  return asked == 0 ? 1 : asked;
}

linear::Bf16Output ReadOutput(const KernelArgs& args) {
  linear::Bf16Output out;
  out.f32 = args.Input("weight").dtype == DType::kF32;
  if (HasTable(args)) {
    out.views[0] = args.Output("table").data;
    return out;
  }
  out.view_width = args.Input("weight").shape[0] / 18;
  for (int c = 0; c < linear::kViews; ++c) out.views[c] = args.Output(kChunkNames[c]).data;
  return out;
}

linear::GradientSource ReadGradient(const KernelArgs& args) {
  linear::GradientSource source;
  source.outputs = args.Input("weight").shape[0];
  source.view_width = source.outputs / 18;
  for (int c = 0; c < linear::kViews; ++c) {
    const TensorView& grad = args.Input(kGradientNames[c]);
    if (!grad.present()) continue;
    source.views[c] = grad.data;
    source.f32 = grad.dtype == DType::kF32;
  }
  return source;
}

}  // namespace adaln

std::vector<MethodDecl> DeclareAdalnProjection3Mod(bool offer_h3) {
  std::vector<MethodDecl> decls;
  for (Kind kind : {Kind::kForward, Kind::kForwardTable, Kind::kBackward}) {
    decls.push_back(Declare(kind, offer_h3));
  }
  return decls;
}

}  // namespace rlk
