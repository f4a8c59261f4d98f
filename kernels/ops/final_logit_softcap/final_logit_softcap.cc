#include "kernels/ops/final_logit_softcap/final_logit_softcap.h"

#include <utility>

#include "kernels/registry/golden_variant.h"
#if defined(RLK_WITH_CUDA)
#include "kernels/ops/final_logit_softcap/cuda_variants.h"
#endif

namespace rlk {
namespace {

constexpr char kForwardArithmetic[] =
    "FP32, round to nearest even, subnormals kept, functions f32-v1: "
    "q = div(x32, softcap32); t = tanh(q); y32 = mul(softcap32, t); "
    "y = y32, or one cast to the dtype of x if output_dtype asks. NaN is stored as 0x7fffffff "
    "(F32) or 0x7fff (F16, BF16).";

constexpr char kBackwardArithmetic[] =
    "FP32, round to nearest even, subnormals kept, functions f32-v1: "
    "t = tanh(div(x32, softcap32)), recomputed from x; m = fma(-t, t, 1); "
    "grad_x = one cast to the dtype of x of mul(grad_y32, m). NaN is stored as 0x7fffffff (F32) or "
    "0x7fff (F16, BF16).";

constexpr char kGoldenForwardArithmetic[] =
    "FP64: softcap * tanh(x / softcap), rounded once to the dtype of y. The reference of accuracy; "
    "its bits depend on the C library.";

constexpr char kGoldenBackwardArithmetic[] =
    "FP64: grad_y / cosh(x / softcap)^2, rounded once to the dtype of grad_x. The reference of "
    "accuracy; its bits depend on the C library.";

absl::Status LaunchForwardGolden(const KernelArgs& args) {
  return LaunchGoldenRounded(&SoftcapForwardGolden, args);
}

absl::Status LaunchBackwardGolden(const KernelArgs& args) {
  return LaunchGoldenRounded(&SoftcapBackwardGolden, args);
}

Variant HostVariant(Backend backend, const char* kernel, const char* contract, ClaimLevel claim,
                    LaunchFn launch) {
  Variant variant;
  variant.backend = backend;
  variant.kernel = kernel;
  variant.contracts = {{contract, claim}};
  variant.launch = launch;
  return variant;
}

void Append(std::vector<Variant> more, std::vector<Variant>& variants) {
  for (Variant& variant : more) variants.push_back(std::move(variant));
}

}  // namespace

std::vector<MethodDecl> DeclareFinalLogitSoftcap() {
  MethodDecl forward;
  forward.method = "final_logit_softcap.forward";
  forward.inputs = {"x"};
  forward.attributes = {"softcap", "output_dtype"};
  forward.outputs = {"y"};
  forward.contracts = {{kSoftcapPortableContract, kForwardArithmetic},
                       {kSoftcapGoldenContract, kGoldenForwardArithmetic}};
  forward.golden = &SoftcapForwardGolden;

  MethodDecl backward;
  backward.method = "final_logit_softcap.backward";
  backward.inputs = {"x", "grad_y"};
  backward.attributes = {"softcap"};
  backward.outputs = {"grad_x"};
  backward.contracts = {{kSoftcapPortableContract, kBackwardArithmetic},
                        {kSoftcapGoldenContract, kGoldenBackwardArithmetic}};
  backward.golden = &SoftcapBackwardGolden;

#if defined(RLK_WITH_CUDA)
  Append(SoftcapForwardCudaVariants(), forward.variants);
  Append(SoftcapBackwardCudaVariants(), backward.variants);
#endif
  Append({HostVariant(Backend::kCpu, "softcap_forward_cpu", kSoftcapPortableContract,
                      ClaimLevel::kL3Portable, &LaunchSoftcapForwardCpu),
          HostVariant(Backend::kGolden, "softcap_forward_golden", kSoftcapGoldenContract,
                      ClaimLevel::kL1BatchInvariant, &LaunchForwardGolden)},
         forward.variants);
  Append({HostVariant(Backend::kCpu, "softcap_backward_cpu", kSoftcapPortableContract,
                      ClaimLevel::kL3Portable, &LaunchSoftcapBackwardCpu),
          HostVariant(Backend::kGolden, "softcap_backward_golden", kSoftcapGoldenContract,
                      ClaimLevel::kL1BatchInvariant, &LaunchBackwardGolden)},
         backward.variants);
  return {std::move(forward), std::move(backward)};
}

}  // namespace rlk
