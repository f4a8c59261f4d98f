#include "kernels/builtin.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/arith/known_answer.h"
#include "kernels/linear/step_law.h"
#include "kernels/ops/adaln_projection_3mod/adaln_projection_3mod.h"
#include "kernels/ops/det_linear/det_linear.h"
#include "kernels/ops/final_logit_softcap/final_logit_softcap.h"
#include "kernels/ops/rms_norm/rms_norm.h"
#include "kernels/ops/timestep_mlp_fp32/timestep_mlp_fp32.h"
#include "kernels/ops/timestep_sinusoid_h3/timestep_sinusoid_h3.h"
#if defined(RLK_WITH_CUDA)
#include "kernels/linear/cublaslt.h"
#include "kernels/ops/timestep_sinusoid_h3/cuda_variants.h"
#endif

namespace rlk {
namespace {

constexpr int kSm90 = 90;

bool Offered(const BuiltinOptions& options, Backend backend) {
  return options.backends.empty() || std::find(options.backends.begin(), options.backends.end(),
                                               backend) != options.backends.end();
}

// The device or the instruction set is there; the bits decide whether the backend is offered.
BackendState FromKnownAnswers(const absl::StatusOr<int>& passed) {
  BackendState state;
  if (passed.ok()) {
    state.available = true;
    state.known_answers_passed = *passed;
  } else {
    state.failed_to_load = true;
    state.reason = absl::StrCat("known answers failed: ", std::string(passed.status().message()));
  }
  return state;
}

BackendState Unavailable(std::string reason) {
  BackendState state;
  state.reason = std::move(reason);
  return state;
}

absl::StatusOr<int> RunCudaKnownAnswers([[maybe_unused]] int ordinal) {
#if defined(RLK_WITH_CUDA)
  return arith::CudaKnownAnswers(ordinal);
#else
  return absl::InternalError("no CUDA code in this build");
#endif
}

// Why the device's tensor-core step is not the law t25x16; empty where it is.
std::string StepLawReason([[maybe_unused]] int ordinal) {
#if defined(RLK_WITH_CUDA)
  const absl::Status status = linear::CheckCudaStepLaw(ordinal);
  return status.ok()
             ? std::string()
             : absl::StrCat("needs the tensor-core law t25x16: ", std::string(status.message()));
#else
  return "no CUDA code in this build";
#endif
}

// A witness has no known answers: its bits are its own.
BackendState WitnessState(const BuiltinOptions& options, const BackendState& cuda) {
  if (!Offered(options, Backend::kCublasLt)) return Unavailable("not offered: --backends");
  if (!options.has_cuda) return Unavailable(cuda.reason);
#if defined(RLK_WITH_CUDA)
  const absl::Status status = linear::CheckCublasLt(options.cuda_ordinal);
  if (!status.ok()) return Unavailable(std::string(status.message()));
  BackendState state;
  state.available = true;
  return state;
#else
  return Unavailable(cuda.reason);
#endif
}

// Both CUDA backends share one run of the vectors.
void SetCudaBackends(const BuiltinOptions& options, Registry& registry) {
  const bool wanted = Offered(options, Backend::kCuda) || Offered(options, Backend::kCudaSm90);
  BackendState state;
#if defined(RLK_WITH_CUDA)
  constexpr bool kBuilt = true;
#else
  constexpr bool kBuilt = false;
#endif
  if (!kBuilt || !options.has_cuda) {
    state = Unavailable(!options.cuda_reason.empty() ? options.cuda_reason
                        : kBuilt                     ? "no CUDA device"
                                                     : "built without CUDA");
  } else if (wanted) {
    state = FromKnownAnswers(RunCudaKnownAnswers(options.cuda_ordinal));
    if (state.available) state.step_law_reason = StepLawReason(options.cuda_ordinal);
  }
  registry.SetBackend(Backend::kCublasLt, WitnessState(options, state));
  for (Backend backend : {Backend::kCudaSm90, Backend::kCuda}) {
    if (!Offered(options, backend)) {
      registry.SetBackend(backend, Unavailable("not offered: --backends"));
    } else if (backend == Backend::kCudaSm90 && kBuilt && options.has_cuda &&
               options.compute_capability != kSm90) {
      registry.SetBackend(backend,
                          Unavailable(absl::StrCat("needs compute capability 90, the device has ",
                                                   options.compute_capability)));
    } else {
      registry.SetBackend(backend, state);
    }
  }
}

void SetHostBackends(const BuiltinOptions& options, Registry& registry) {
  const BackendState state = FromKnownAnswers(arith::CpuKnownAnswers());
  for (Backend backend : {Backend::kCpu, Backend::kGolden}) {
    registry.SetBackend(backend,
                        Offered(options, backend) ? state : Unavailable("not offered: --backends"));
  }
}

// A contract that names a provider's functions is not offered on a device whose functions have
// other bits.
bool OfferH3([[maybe_unused]] const BuiltinOptions& options,
             [[maybe_unused]] const Registry& registry) {
#if defined(RLK_WITH_CUDA)
  if (registry.backend(Backend::kCuda).available) return HasH3Functions(options.cuda_ordinal);
#endif
  return true;
}

}  // namespace

void RegisterBuiltin(const BuiltinOptions& options, Registry& registry) {
  SetCudaBackends(options, registry);
  SetHostBackends(options, registry);
  for (MethodDecl& decl : DeclareFinalLogitSoftcap()) registry.Add(std::move(decl));
  for (MethodDecl& decl : DeclareRmsNorm()) registry.Add(std::move(decl));
  for (MethodDecl& decl : DeclareDetLinear()) registry.Add(std::move(decl));
  const bool offer_h3 = OfferH3(options, registry);
  for (MethodDecl& decl : DeclareTimestepSinusoidH3(offer_h3)) registry.Add(std::move(decl));
  for (MethodDecl& decl : DeclareTimestepMlpFp32()) registry.Add(std::move(decl));
  for (MethodDecl& decl : DeclareAdalnProjection3Mod(offer_h3)) registry.Add(std::move(decl));
}

}  // namespace rlk
