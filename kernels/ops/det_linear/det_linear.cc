#include "kernels/ops/det_linear/det_linear.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "kernels/linear/k128.h"
#include "kernels/registry/golden_variant.h"
#if defined(RLK_WITH_CUDA)
#include "kernels/ops/det_linear/bf16_cuda_variants.h"
#include "kernels/ops/det_linear/cuda_variants.h"
#endif

namespace rlk {
namespace {

using det_linear::kBf16Contract;
using det_linear::kFp32Contract;
using det_linear::Kind;
using det_linear::kK128Contract;
using linear::Activation;

constexpr char kGoldenContract[] = "det_linear/golden-f64";
// Of the variant in bf16_cuda_variants.cc.
using det_linear::kWitnessContract;

constexpr char kCommon[] =
    "FP32, round to nearest even, subnormals kept, functions f32-v1; stored NaN are 0x7fffffff. ";
constexpr char kFp32Forward[] =
    "F32 operands, K a multiple of 4. 32 accumulators, from +0; chunk j, k = 4j .. 4j+3, belongs "
    "to A[j mod 32]; chunks ascending, k ascending: A = fma(x, w, A). For s = 16, 8, 4, 2, 1: A[l] "
    "= add(A[l], A[l xor s]) for all l at once; total = A[0]. pre = v = add(total, bias or +0); y "
    "= act(v), silu(v) = mul(v, sigmoid(v)).";
constexpr char kBf16Forward[] =
    "BF16 operands, K a multiple of 8. total = +0; for s = 0 .. ceil(K/32)-1, for u = 0, 1: total "
    "= add(total, D), D = the tensor-core step t25x16 from +0 of the 16 products k = 32s + 8q + 4u "
    "+ i, q, i = 0 .. 3; operands beyond K are +0. pre = v = add(total, bias32 or +0); y = "
    "cast(act(v)), silu(v) = mul(v, sigmoid(v)).";
constexpr char kBf16Operands[] = "BF16 operands are up-converted exactly, sums are FP32. ";
constexpr char kGradient[] =
    "g = grad_y, or with activation silu mul(grad_y, dsilu(pre)), dsilu(z) = mul(s, fma(z, sub(1, "
    "s), 1)), s = sigmoid(z). ";
constexpr char kBackwardInput[] =
    "grad_x[t,k]: for each chunk c of 64 outputs: P = +0; n ascending P = fma(g[t,n], w[n,k], P); "
    "D = P of the first chunk; then ascending D = add(D, P).";
constexpr char kBackwardWeight[] =
    "dweight_acc[n,k] = A: A = carry or +0; rows ascending A = fma(g[t,n], x[t,k], A). "
    "dbias_acc[n] = A: A = carry or +0; rows ascending A = add(A, g[t,n]). grad_weight and "
    "grad_bias are one cast of them. Can be carried at any row.";
constexpr char kK128Sums[] =
    "BF16 operands, K a multiple of 8. A sum over a reduction of R pairs: chunk(k0): c = +0; for i "
    "= "
    "0 .. 7: c = the tensor-core step t25x16 from c of the 16 products k0 + 16i .. k0 + 16i + 15; "
    "operands beyond R are +0, steps without any are left out. run(lo, hi): Q = +0; for k0 = lo, "
    "lo "
    "+ 128, .. < hi: Q = add(Q, chunk(k0)). ";
constexpr char kK128Parts[] =
    "total = run(0, R) with fold_parts 1; run(0, R/2) + run(R/2, R) with 2; (q0 + q1) + (q2 + q3) "
    "over equal quarters with 4. 2 and 4 need R % (128 parts) = 0; the default is 4 where R % 512 "
    "= "
    "0 and R >= 16384, else 1. ";
constexpr char kK128Forward[] =
    "R = K. pre = v = add(total, bias32 or +0); y = cast(act(v)), silu(v) = mul(v, sigmoid(v)).";
constexpr char kK128Gradient[] =
    "BF16 g without an activation: the sum as it is. FP32 g: g0 = bf16(g), g1 = bf16(sub(g, g0)), "
    "g2 "
    "= bf16(sub(sub(g, g0), g1)); a chunk has 8 steps with g2, then 8 with g1, then 8 with g0. ";
constexpr char kK128BackwardInput[] = "grad_x[t,k] = total over n of (g[t,n], w[n,k]), R = N.";
constexpr char kK128BackwardWeight[] =
    "dweight_acc[n,k] = run(0, T) over rows of (g[t,n], x[t,k]), from Q = carry or +0. "
    "dbias_acc[n] = A: A = carry or +0; for each 128 rows P = +0; rows ascending P = add(P, "
    "g[t,n]); "
    "A = add(A, P). grad_weight and grad_bias are one cast of them. Can be carried after a "
    "multiple "
    "of 128 rows.";
constexpr char kGolden[] =
    "FP64, rounded once to the dtype of the output. The reference of accuracy; its bits depend on "
    "the C library.";

constexpr char kWitness[] =
    "cuBLASLt's product with bias, one algorithm for each [N, K], accumulated in FP32 in the "
    "library's own order; no activation. Its bits depend on the library's version and the device.";

// What is known of a method once.
struct MethodFacts {
  Kind kind;
  const char *name, *kernel;
  std::vector<std::string> inputs, attributes, outputs;
  const char* operand;  // the input whose dtype decides the contract
  LaunchFn fp32_cpu, bf16_cpu, golden, golden_rounded;
};

absl::Status GoldenForward(const KernelArgs& args) {
  return LaunchGoldenRounded(&DetLinearForwardGolden, args);
}
absl::Status GoldenBackwardInput(const KernelArgs& args) {
  return LaunchGoldenRounded(&DetLinearBackwardInputGolden, args);
}
absl::Status GoldenBackwardWeight(const KernelArgs& args) {
  return LaunchGoldenRounded(&DetLinearBackwardWeightGolden, args);
}

std::vector<MethodFacts> AllFacts() {
  return {
      {Kind::kForward,
       "det_linear.forward",
       "forward",
       {"x", "weight", "bias"},
       {"activation", "output_dtype", "fold_parts"},
       {"y", "pre"},
       "x",
       &LaunchDetLinearFp32ForwardCpu,
       &LaunchDetLinearBf16ForwardCpu,
       &DetLinearForwardGolden,
       &GoldenForward},
      {Kind::kBackwardInput,
       "det_linear.backward_input",
       "backward_input",
       {"grad_y", "weight", "pre"},
       {"activation", "output_dtype", "fold_parts"},
       {"grad_x"},
       "weight",
       &LaunchDetLinearFp32BackwardInputCpu,
       &LaunchDetLinearBf16BackwardInputCpu,
       &DetLinearBackwardInputGolden,
       &GoldenBackwardInput},
      {Kind::kBackwardWeight,
       "det_linear.backward_weight",
       "backward_weight",
       {"grad_y", "x", "pre", "dweight_acc_in", "dbias_acc_in"},
       {"activation", "rows_before"},
       {"grad_weight", "grad_bias", "dweight_acc", "dbias_acc"},
       "x",
       &LaunchDetLinearFp32BackwardWeightCpu,
       &LaunchDetLinearBf16BackwardWeightCpu,
       &DetLinearBackwardWeightGolden,
       &GoldenBackwardWeight},
  };
}

std::string Arithmetic(Kind kind, bool bf16) {
  switch (kind) {
    case Kind::kForward:
      return absl::StrCat(kCommon, bf16 ? kBf16Forward : kFp32Forward);
    case Kind::kBackwardInput:
      return absl::StrCat(kCommon, bf16 ? kBf16Operands : "", kGradient, kBackwardInput);
    case Kind::kBackwardWeight:
      break;
  }
  return absl::StrCat(kCommon, bf16 ? kBf16Operands : "", kGradient, kBackwardWeight);
}

std::string K128Arithmetic(Kind kind) {
  switch (kind) {
    case Kind::kForward:
      return absl::StrCat(kCommon, kK128Sums, kK128Parts, kK128Forward);
    case Kind::kBackwardInput:
      return absl::StrCat(kCommon, kK128Sums, kK128Parts, kGradient, kK128Gradient,
                          kK128BackwardInput);
    case Kind::kBackwardWeight:
      break;
  }
  return absl::StrCat(kCommon, kK128Sums, kGradient, kK128Gradient, kK128BackwardWeight);
}

std::vector<Contract> Contracts(const MethodFacts& facts) {
  std::vector<Contract> contracts = {
      {kFp32Contract, Arithmetic(facts.kind, false), facts.operand, {DType::kF32}},
      {kBf16Contract, Arithmetic(facts.kind, true), facts.operand, {DType::kBF16}},
      {kK128Contract, K128Arithmetic(facts.kind), facts.operand, {DType::kBF16}},
      {kGoldenContract, kGolden}};
  if (facts.kind == Kind::kForward) {
    contracts.push_back({kWitnessContract, kWitness, facts.operand, {DType::kBF16}});
  }
  return contracts;
}

// silu_cuda is CUDA's own function: no other backend has its bits.
absl::Status NotSiluCuda(const KernelArgs& args) {
  if (det_linear::ReadActivation(args) != Activation::kSiluCuda) return absl::OkStatus();
  return absl::FailedPreconditionError("activation silu_cuda runs on CUDA backends only");
}

absl::Status CheckSizes(const KernelArgs& args, Kind kind) {
  const linear::Shape shape = det_linear::ReadShape(args, kind);
  const char* const of_rows = kind == Kind::kForward ? "x" : "grad_y";
  const char* const of_inputs = kind == Kind::kBackwardWeight ? "x" : "weight";
  const char* const of_outputs = kind == Kind::kForward ? "weight" : "grad_y";
  const auto refuse = [](const char* field, const char* name, int64_t value, const char* allowed,
                         const char* message) {
    return InvalidArgument(Reason::kShapeMismatch, field, absl::StrCat(name, " = ", value), allowed,
                           message);
  };
  if (shape.rows < 1) return refuse(of_rows, "T", shape.rows, "T >= 1", "there are no rows");
  if (shape.outputs < 1) {
    return refuse(of_outputs, "N", shape.outputs, "N >= 1", "there are no outputs");
  }
  const bool bf16 = args.Input(of_inputs).dtype == DType::kBF16;
  if (shape.inputs < 1 || shape.inputs % (bf16 ? 8 : 4) != 0) {
    return refuse(of_inputs, "K", shape.inputs,
                  bf16 ? "a multiple of 8, K >= 8" : "a multiple of 4, K >= 4",
                  "rows must be whole 16-byte chunks");
  }
  return absl::OkStatus();
}

// The saved forward value is there where the activation needs it, and only there.
absl::Status CheckPre(const KernelArgs& args) {
  const bool needed = det_linear::ReadActivation(args) != Activation::kNone;
  const bool given = args.Input("pre").present();
  if (needed == given) return absl::OkStatus();
  return needed ? InvalidArgument(Reason::kMissingTensor, "pre", "absent", "a tensor",
                                  "the activation's gradient needs it")
                : InvalidArgument(Reason::kUnexpectedTensor, "pre", "given", "none",
                                  "without an activation nothing reads it");
}

// fold_parts where the contract has them.
absl::Status CheckFoldParts(const KernelArgs& args, Kind kind) {
  const int64_t parts = args.I64("fold_parts");
  const auto refuse = [&](std::string allowed, std::string message) {
    return InvalidArgument(Reason::kAttributeOutOfRange, "fold_parts", std::to_string(parts),
                           allowed, message);
  };
  if (args.contract == kFp32Contract || args.contract == kBf16Contract) {
    if (parts <= 1) return absl::OkStatus();
    return refuse("0, 1", absl::StrCat("contract ", std::string(args.contract), " has one part"));
  }
  if (parts == 3) return refuse("0, 1, 2, 4", "a sum has 1, 2 or 4 parts");
  if (args.contract != kK128Contract || parts == 0) return absl::OkStatus();
  const linear::Shape shape = det_linear::ReadShape(args, kind);
  const int64_t length = kind == Kind::kForward ? shape.inputs : shape.outputs;
  if (linear::K128PartsFit(parts, length)) return absl::OkStatus();
  return refuse(linear::K128PartsFit(2, length) ? "0, 1, 2" : "0, 1",
                absl::StrCat("a part is whole chunks of 128: ", kind == Kind::kForward ? "K" : "N",
                             " = ", length));
}

absl::Status CheckRowsBefore(const KernelArgs& args) {
  const int64_t rows = args.I64("rows_before");
  if (args.contract != kK128Contract || rows % linear::kK128Chunk == 0) return absl::OkStatus();
  return InvalidArgument(
      Reason::kAttributeOutOfRange, "rows_before", std::to_string(rows), "a multiple of 128",
      absl::StrCat("contract ", std::string(args.contract), " carries whole chunks of rows"));
}

template <Kind kKind>
absl::Status Validate(const KernelArgs& args) {
  RLK_RETURN_IF_ERROR(CheckSizes(args, kKind));
  if constexpr (kKind != Kind::kForward) RLK_RETURN_IF_ERROR(CheckPre(args));
  if constexpr (kKind == Kind::kBackwardWeight) return CheckRowsBefore(args);
  return CheckFoldParts(args, kKind);
}

template <Kind kKind>
int64_t FoldParts(const KernelArgs& args) {
  return det_linear::ReadFoldParts(args, kKind);
}

absl::Status (*ValidateOf(Kind kind))(const KernelArgs&) {
  switch (kind) {
    case Kind::kForward:
      return &Validate<Kind::kForward>;
    case Kind::kBackwardInput:
      return &Validate<Kind::kBackwardInput>;
    case Kind::kBackwardWeight:
      break;
  }
  return &Validate<Kind::kBackwardWeight>;
}

std::vector<Variant> HostVariants(const MethodFacts& facts) {
  Variant cpu;
  cpu.backend = Backend::kCpu;
  cpu.kernel = absl::StrCat("det_linear_fp32_", facts.kernel, "_cpu");
  cpu.launch = facts.fp32_cpu;
  cpu.applicable = &NotSiluCuda;
  cpu.contracts = {{kFp32Contract, ClaimLevel::kL3Portable}};
  Variant bf16 = cpu;
  bf16.kernel = absl::StrCat("det_linear_bf16_", facts.kernel, "_cpu");
  bf16.launch = facts.bf16_cpu;
  bf16.contracts = {{kBf16Contract, ClaimLevel::kL3Portable},
                    {kK128Contract, ClaimLevel::kL3Portable}};
  Variant golden;
  golden.backend = Backend::kGolden;
  golden.kernel = absl::StrCat("det_linear_", facts.kernel, "_golden");
  golden.launch = facts.golden_rounded;
  golden.contracts = {{kGoldenContract, ClaimLevel::kL1BatchInvariant}};
  return {std::move(cpu), std::move(bf16), std::move(golden)};
}

}  // namespace

std::vector<MethodDecl> DeclareDetLinear() {
  std::vector<MethodDecl> decls;
  for (const MethodFacts& facts : AllFacts()) {
    MethodDecl decl;
    decl.method = facts.name;
    decl.inputs = facts.inputs;
    decl.attributes = facts.attributes;
    decl.outputs = facts.outputs;
    decl.contracts = Contracts(facts);
#if defined(RLK_WITH_CUDA)
    decl.variants = DetLinearCudaVariants(facts.kind);
    for (Variant& variant : DetLinearBf16CudaVariants(facts.kind)) {
      decl.variants.push_back(std::move(variant));
    }
#endif
    for (Variant& variant : HostVariants(facts)) decl.variants.push_back(std::move(variant));
    decl.validate = ValidateOf(facts.kind);
    if (facts.kind != Kind::kBackwardWeight) {
      decl.resolved_attribute = "fold_parts";
      decl.resolve = facts.kind == Kind::kForward ? &FoldParts<Kind::kForward>
                                                  : &FoldParts<Kind::kBackwardInput>;
    }
    decl.golden = facts.golden;
    decls.push_back(std::move(decl));
  }
  return decls;
}

}  // namespace rlk
