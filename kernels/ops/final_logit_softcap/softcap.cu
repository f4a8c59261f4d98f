// Launchers of final_logit_softcap on CUDA. Which kernel runs depends on dtypes, strides, alignment
// and the cap; all of them give the same bits.

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"
#include "kernels/ops/final_logit_softcap/cuda_variants.h"
#include "kernels/ops/final_logit_softcap/final_logit_softcap.h"
#include "kernels/ops/final_logit_softcap/kernels.cuh"

namespace rlk {
namespace {

using device::Bf16;
using device::F16;

// Measured on an H200 among twenty cuts. Eight elements a thread in small blocks; a large BF16 ->
// F32 call, which is close to the issue limit (38 slots an element), takes sixteen, so that loads,
// the test for tiny magnitudes and addresses cost less.
using CutOf4 = softcap::Tuning<4, 1, 128>;  // small calls: more warps
constexpr int64_t kSmallElements = int64_t{1} << 19;
using CutOf8 = softcap::Tuning<4, 2, 128>;
using CutOf16 = softcap::Tuning<4, 4, 64>;
constexpr int64_t kLargeElements = int64_t{1} << 22;

template <typename Cut, typename X, typename Y>
absl::Status LaunchForwardCut(const TensorView& x, const MutableTensorView& y, float cap,
                              cudaStream_t stream) {
  const int64_t n = x.elements();
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(n, Cut::kBlockElements));
  const auto kernel = softcap::HasFastDivision(cap)
                          ? softcap::SoftcapForwardKernel<X, Y, true, Cut>
                          : softcap::SoftcapForwardKernel<X, Y, false, Cut>;
  return cuda::Launch(kernel, blocks, Cut::kThreads, stream, x.as<X>(), y.as<Y>(), n,
                      softcap::MakeCap(cap));
}

template <typename X, typename Y>
absl::Status LaunchForward(const TensorView& x, const MutableTensorView& y, float cap,
                           cudaStream_t stream) {
  const int64_t n = x.elements();
  if (n == 0) return absl::OkStatus();
  if (!x.contiguous() || !device::VectorAligned(x.data) || !device::VectorAligned(y.data)) {
    RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(n, softcap::kElementThreads));
    return cuda::Launch(softcap::SoftcapForwardElementsKernel<X, Y>, blocks,
                        softcap::kElementThreads, stream, x.as<X>(),
                        device::MakeStridedIndex(x.shape, x.strides), y.as<Y>(), n, cap);
  }
  if constexpr (std::is_same_v<X, Bf16> && std::is_same_v<Y, float>) {
    if (n >= kLargeElements) return LaunchForwardCut<CutOf16, X, Y>(x, y, cap, stream);
  }
  if (n <= kSmallElements) return LaunchForwardCut<CutOf4, X, Y>(x, y, cap, stream);
  return LaunchForwardCut<CutOf8, X, Y>(x, y, cap, stream);
}

template <typename X, typename G>
absl::Status LaunchBackward(const TensorView& x, const TensorView& grad_y,
                            const MutableTensorView& grad_x, float cap, cudaStream_t stream) {
  const int64_t n = x.elements();
  if (n == 0) return absl::OkStatus();
  if (!x.contiguous() || !grad_y.contiguous() || !device::VectorAligned(x.data) ||
      !device::VectorAligned(grad_y.data) || !device::VectorAligned(grad_x.data)) {
    RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(n, softcap::kElementThreads));
    return cuda::Launch(
        softcap::SoftcapBackwardElementsKernel<X, G>, blocks, softcap::kElementThreads, stream,
        x.as<X>(), device::MakeStridedIndex(x.shape, x.strides), grad_y.as<G>(),
        device::MakeStridedIndex(grad_y.shape, grad_y.strides), grad_x.as<X>(), n, cap);
  }
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(n, CutOf8::kBlockElements));
  const auto kernel = softcap::HasFastDivision(cap)
                          ? softcap::SoftcapBackwardKernel<X, G, true, CutOf8>
                          : softcap::SoftcapBackwardKernel<X, G, false, CutOf8>;
  return cuda::Launch(kernel, blocks, CutOf8::kThreads, stream, x.as<X>(), grad_y.as<G>(),
                      grad_x.as<X>(), n, softcap::MakeCap(cap));
}

absl::Status UnexpectedDtypes() {
  ErrorDetail detail;
  detail.reason = Reason::kInternal;
  detail.field = "dtype";
  return MakeError(
      absl::StatusCode::kInternal, std::move(detail),
      "final_logit_softcap was launched with dtypes that its signature does not allow");
}

absl::Status Forward(const KernelArgs& args) {
  const TensorView& x = args.Input("x");
  const MutableTensorView& y = args.Output("y");
  const float cap = args.F32("softcap");
  cudaStream_t stream = cuda::CudaStream(args.stream);
  if (x.dtype == DType::kF32 && y.dtype == DType::kF32) {
    return LaunchForward<float, float>(x, y, cap, stream);
  }
  if (x.dtype == DType::kBF16) {
    if (y.dtype == DType::kF32) return LaunchForward<Bf16, float>(x, y, cap, stream);
    if (y.dtype == DType::kBF16) return LaunchForward<Bf16, Bf16>(x, y, cap, stream);
  }
  if (x.dtype == DType::kF16) {
    if (y.dtype == DType::kF32) return LaunchForward<F16, float>(x, y, cap, stream);
    if (y.dtype == DType::kF16) return LaunchForward<F16, F16>(x, y, cap, stream);
  }
  return UnexpectedDtypes();
}

absl::Status Backward(const KernelArgs& args) {
  const TensorView& x = args.Input("x");
  const TensorView& g = args.Input("grad_y");
  const MutableTensorView& grad_x = args.Output("grad_x");
  const float cap = args.F32("softcap");
  cudaStream_t stream = cuda::CudaStream(args.stream);
  if (x.dtype == DType::kF32 && g.dtype == DType::kF32) {
    return LaunchBackward<float, float>(x, g, grad_x, cap, stream);
  }
  if (x.dtype == DType::kBF16) {
    if (g.dtype == DType::kF32) return LaunchBackward<Bf16, float>(x, g, grad_x, cap, stream);
    if (g.dtype == DType::kBF16) return LaunchBackward<Bf16, Bf16>(x, g, grad_x, cap, stream);
  }
  if (x.dtype == DType::kF16) {
    if (g.dtype == DType::kF32) return LaunchBackward<F16, float>(x, g, grad_x, cap, stream);
    if (g.dtype == DType::kF16) return LaunchBackward<F16, F16>(x, g, grad_x, cap, stream);
  }
  return UnexpectedDtypes();
}

std::vector<Variant> OneVariant(std::string kernel, LaunchFn launch) {
  Variant variant;
  variant.backend = Backend::kCuda;
  variant.kernel = std::move(kernel);
  variant.contracts = {
      {kSoftcapPortableContract, ClaimLevel::kL3Portable, {90}, ClaimLevel::kL1BatchInvariant}};
  variant.capability_min = 80;
  variant.launch = launch;
  return {std::move(variant)};
}

}  // namespace

std::vector<Variant> SoftcapForwardCudaVariants() {
  return OneVariant("softcap_forward_cuda", Forward);
}

std::vector<Variant> SoftcapBackwardCudaVariants() {
  return OneVariant("softcap_backward_cuda", Backward);
}

}  // namespace rlk
