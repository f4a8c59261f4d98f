#include "kernels/ops/timestep_sinusoid_h3/timestep_sinusoid_h3.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/core/status.h"
#include "kernels/registry/golden_reader.h"
#include "kernels/registry/golden_variant.h"
#if defined(RLK_WITH_CUDA)
#include "kernels/ops/timestep_sinusoid_h3/cuda_variants.h"
#endif

namespace rlk {
namespace {

using timestep_sinusoid::kChannelsMax;
using timestep_sinusoid::kH3Contract;
using timestep_sinusoid::kPortableContract;

constexpr char kGoldenContract[] = "timestep_sinusoid_h3/golden-f64";

constexpr char kFrequencies[] =
    "half = C / 2; c0 = fp32(-log(max_period)), the logarithm in FP64 of max_period in FP32; ih = "
    "div(1, float(half)); f_k = exp(mul(mul(c0, float(k)), ih)). ";
constexpr char kForward[] =
    "a = mul(t32, f_k); embedding[t, k] = cos(a), embedding[t, half + k] = sin(a). FP32, round to "
    "nearest even, subnormals kept; ";
constexpr char kBackward[] =
    "v_k = mul(-mul(g_cos, sin), f_k), v_(half+k) = mul(mul(g_sin, cos), f_k), cos and sin as "
    "saved; padded with +0 to a power of two P; for w = P/2, P/4 .. 1: v_i = add(v_i, v_(i+w)), i "
    "< w; grad_timestep = cast(v_0). FP32, round to nearest even, subnormals kept; ";
constexpr char kPortableFunctions[] = "exp, sin and cos of the function set f32-v1.";
constexpr char kH3Functions[] =
    "expf, sinf and cosf of CUDA 13.0's libdevice, as in torch 2.11+cu130: the bits of diffusers' "
    "embedding on a GPU (flip_sin_to_cos, scale 1, shift 0).";
constexpr char kGolden[] =
    "FP64, rounded once to the dtype of the output. The reference of accuracy; its bits depend on "
    "the C library.";

absl::Status GoldenForward(const KernelArgs& args) {
  return LaunchGoldenRounded(&TimestepSinusoidForwardGolden, args);
}
absl::Status GoldenBackward(const KernelArgs& args) {
  return LaunchGoldenRounded(&TimestepSinusoidBackwardGolden, args);
}

absl::Status RequireRows(const char* field, int64_t rows) {
  if (rows >= 1) return absl::OkStatus();
  return InvalidArgument(Reason::kShapeMismatch, field, absl::StrCat("T = ", rows), "T >= 1",
                         "there are no rows");
}

absl::Status ValidateForward(const KernelArgs& args) {
  return RequireRows("timestep", args.Input("timestep").shape[0]);
}

absl::Status ValidateBackward(const KernelArgs& args) {
  const TensorView& grad = args.Input("grad_embedding");
  RLK_RETURN_IF_ERROR(RequireRows("grad_embedding", grad.shape[0]));
  if (grad.shape[1] >= 2 && grad.shape[1] <= kChannelsMax) return absl::OkStatus();
  return InvalidArgument(
      Reason::kShapeMismatch, "grad_embedding", absl::StrCat("C = ", grad.shape[1]),
      absl::StrCat("2 <= C <= ", kChannelsMax), "the number of channels is out of range");
}

// Timesteps are fractions: those that were scaled by 1000, as other embeddings take them, are
// refused rather than embedded.
absl::Status ValidateTimesteps(const KernelArgs& args) {
  const TensorView& timestep = args.Input("timestep");
  for (int64_t t = 0; t < timestep.shape[0]; ++t) {
    const double value = golden::Element(timestep, t);
    if (value >= 0 && value <= 1) continue;
    return InvalidArgument(Reason::kValueOutOfRange, "timestep",
                           absl::StrFormat("%.9g (element %d)", value, t),
                           "finite, 0 <= timestep <= 1", "a timestep is not a fraction");
  }
  return absl::OkStatus();
}

MethodDecl Declare(bool backward, [[maybe_unused]] bool offer_h3) {
  MethodDecl decl;
  decl.method = backward ? "timestep_sinusoid_h3.backward" : "timestep_sinusoid_h3.forward";
  if (backward) {
    decl.inputs = {"grad_embedding", "embedding"};
    decl.attributes = {"max_period", "timestep_dtype"};
    decl.outputs = {"grad_timestep"};
  } else {
    decl.inputs = {"timestep"};
    decl.attributes = {"num_channels", "max_period"};
    decl.outputs = {"embedding"};
    decl.checked_inputs = {"timestep"};
    decl.validate_values = &ValidateTimesteps;
  }
  const std::string text = absl::StrCat(kFrequencies, backward ? kBackward : kForward);
  decl.contracts = {{kPortableContract, text + kPortableFunctions},
                    {kH3Contract, text + kH3Functions},
                    {kGoldenContract, kGolden}};
#if defined(RLK_WITH_CUDA)
  decl.variants = TimestepSinusoidCudaVariants(backward, offer_h3);
#endif
  Variant cpu;
  cpu.backend = Backend::kCpu;
  cpu.kernel = backward ? "timestep_sinusoid_backward_cpu" : "timestep_sinusoid_forward_cpu";
  cpu.launch = backward ? &LaunchTimestepSinusoidBackwardCpu : &LaunchTimestepSinusoidForwardCpu;
  cpu.contracts = {{kPortableContract, ClaimLevel::kL3Portable}};
  Variant golden;
  golden.backend = Backend::kGolden;
  golden.kernel =
      backward ? "timestep_sinusoid_backward_golden" : "timestep_sinusoid_forward_golden";
  golden.launch = backward ? &GoldenBackward : &GoldenForward;
  golden.contracts = {{kGoldenContract, ClaimLevel::kL1BatchInvariant}};
  decl.variants.push_back(std::move(cpu));
  decl.variants.push_back(std::move(golden));
  decl.validate = backward ? &ValidateBackward : &ValidateForward;
  decl.golden = backward ? &TimestepSinusoidBackwardGolden : &TimestepSinusoidForwardGolden;
  return decl;
}

}  // namespace

timestep_sinusoid::Problem timestep_sinusoid::ReadProblem(const KernelArgs& args, bool backward) {
  Problem problem;
  const TensorView& first = args.Input(backward ? "grad_embedding" : "timestep");
  problem.rows = first.shape[0];
  problem.half = (backward ? first.shape[1] : args.I64("num_channels")) / 2;
  problem.log_period = static_cast<float>(-std::log(static_cast<double>(args.F32("max_period"))));
  problem.inverse_half = 1.0f / static_cast<float>(problem.half);
  return problem;
}

int64_t timestep_sinusoid::PaddedChannels(int64_t half) {
  int64_t padded = 2;
  while (padded < 2 * half) padded *= 2;
  return padded;
}

std::vector<MethodDecl> DeclareTimestepSinusoidH3(bool offer_h3) {
  std::vector<MethodDecl> decls;
  decls.push_back(Declare(false, offer_h3));
  decls.push_back(Declare(true, offer_h3));
  return decls;
}

}  // namespace rlk
