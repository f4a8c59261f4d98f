// What the benchmark script times, behind a C interface: the shipped launchers, candidate cuts of
// the same kernels, copies with the same bytes, an empty kernel, the digest. Pointers are device
// memory, `stream` is a cudaStream_t. 0 is success; otherwise rlk_bench_error says why.
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/digest/digest.h"
#include "kernels/digest/digest_cuda.h"
#include "kernels/ops/final_logit_softcap/cuda_variants.h"
#include "kernels/ops/final_logit_softcap/kernels.cuh"

#define RLK_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using rlk::Dims;
using rlk::DType;
using rlk::KernelArgs;
using rlk::MutableTensorView;
using rlk::TensorView;
using rlk::device::Bf16;
using rlk::device::CacheHint;
using rlk::device::F16;
using rlk::softcap::Tuning;

thread_local std::string error_text;

int Report(const absl::Status& status) {
  if (status.ok()) return 0;
  error_text = std::string(status.message());
  return 1;
}

// The part of the signatures that the launchers look up.
rlk::MethodSignature Signature(std::vector<std::string> inputs, std::string output) {
  rlk::MethodSignature signature;
  for (std::string& name : inputs) signature.inputs.emplace_back().name = std::move(name);
  signature.outputs.emplace_back().name = std::move(output);
  signature.attributes.emplace_back().name = "softcap";
  return signature;
}

template <int kCount>
int LaunchShipped(const rlk::MethodSignature& signature, rlk::LaunchFn launch,
                  const TensorView (&inputs)[kCount], const MutableTensorView& output, float cap,
                  void* stream) {
  int32_t begin[kCount + 1];
  for (int i = 0; i <= kCount; ++i) begin[i] = i;
  rlk::AttributeValue attribute;
  attribute.number = cap;
  KernelArgs args;
  args.signature = &signature;
  args.inputs = inputs;
  args.input_begin = begin;
  args.outputs = {&output, 1};
  args.attributes = {&attribute, 1};
  args.stream = {stream};
  return Report(launch(args));
}

TensorView View(int dtype, int64_t n, const void* data) {
  return {static_cast<DType>(dtype), Dims{n}, Dims{1}, data};
}
MutableTensorView MutableView(int dtype, int64_t n, void* data) {
  return {static_cast<DType>(dtype), Dims{n}, data};
}

template <typename X, typename Y, typename T>
absl::Status Forward(const void* x, void* y, int64_t n, float cap, cudaStream_t stream) {
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, rlk::cuda::GridBlocks(n, T::kBlockElements));
  return rlk::cuda::Launch(rlk::softcap::SoftcapForwardKernel<X, Y, true, T>, blocks, T::kThreads,
                           stream, static_cast<const X*>(x), static_cast<Y*>(y), n,
                           rlk::softcap::MakeCap(cap));
}

template <typename X, typename G, typename T>
absl::Status Backward(const void* x, const void* g, void* grad_x, int64_t n, float cap,
                      cudaStream_t stream) {
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, rlk::cuda::GridBlocks(n, T::kBlockElements));
  return rlk::cuda::Launch(rlk::softcap::SoftcapBackwardKernel<X, G, true, T>, blocks, T::kThreads,
                           stream, static_cast<const X*>(x), static_cast<const G*>(g),
                           static_cast<X*>(grad_x), n, rlk::softcap::MakeCap(cap));
}

constexpr CacheHint kKeep = CacheHint::kDefault;
constexpr CacheHint kStream = CacheHint::kStreaming;

// Candidate cuts, in the order of kCandidateNames.
#define RLK_CANDIDATES(CASE)                     \
  CASE(0, (Tuning<4, 2, 256, kStream, kStream>)) \
  CASE(1, (Tuning<8, 1, 256, kStream, kStream>)) \
  CASE(2, (Tuning<4, 4, 256, kStream, kStream>)) \
  CASE(3, (Tuning<4, 2, 128, kStream, kStream>)) \
  CASE(4, (Tuning<4, 2, 512, kStream, kStream>)) \
  CASE(5, (Tuning<4, 2, 256, kKeep, kKeep>))     \
  CASE(6, (Tuning<4, 2, 256, kStream, kKeep>))   \
  CASE(7, (Tuning<4, 4, 128, kStream, kStream>)) \
  CASE(8, (Tuning<4, 1, 256, kStream, kStream>)) \
  CASE(9, (Tuning<8, 2, 128, kStream, kStream>))
constexpr const char* kCandidateNames[] = {
    "4x2/256 stream", "8x1/256 stream",      "4x4/256 stream", "4x2/128 stream", "4x2/512 stream",
    "4x2/256 keep",   "4x2/256 stream-load", "4x4/128 stream", "4x1/256 stream", "8x2/128 stream"};
constexpr int kCandidates = sizeof(kCandidateNames) / sizeof(kCandidateNames[0]);

#define RLK_UNWRAP(...) __VA_ARGS__

template <typename X, typename Y>
absl::Status ForwardCandidate(int index, const void* x, void* y, int64_t n, float cap,
                              cudaStream_t stream) {
  switch (index) {
#define RLK_CASE(i, tuning) \
  case i:                   \
    return Forward<X, Y, RLK_UNWRAP tuning>(x, y, n, cap, stream);
    RLK_CANDIDATES(RLK_CASE)
#undef RLK_CASE
    default:
      return absl::InvalidArgumentError("no such candidate");
  }
}

template <typename X, typename G>
absl::Status BackwardCandidate(int index, const void* x, const void* g, void* grad_x, int64_t n,
                               float cap, cudaStream_t stream) {
  switch (index) {
#define RLK_CASE(i, tuning) \
  case i:                   \
    return Backward<X, G, RLK_UNWRAP tuning>(x, g, grad_x, n, cap, stream);
    RLK_CANDIDATES(RLK_CASE)
#undef RLK_CASE
    default:
      return absl::InvalidArgumentError("no such candidate");
  }
}

// Copies with the bytes of an operator: reads `read_words` of 16 bytes for every `write_words`.
// The words written are made of the words read, so that no load can be left out.
template <int kRead, int kWrite>
__global__ void __launch_bounds__(256)
    CopyKernel(const uint4* __restrict__ in, uint4* __restrict__ out, int64_t groups) {
  const int64_t block = int64_t{blockIdx.x} * 256;
  const int64_t group = block + threadIdx.x;
  if (group >= groups) return;
  const int64_t lanes = groups - block < 256 ? groups - block : 256;
  uint4 words[kRead];
#pragma unroll
  for (int i = 0; i < kRead; ++i) words[i] = __ldcs(in + block * kRead + i * lanes + threadIdx.x);
#pragma unroll
  for (int i = 1; i < kRead; ++i) {
    words[0].x ^= words[i].x;
    words[0].y ^= words[i].y;
    words[0].z ^= words[i].z;
    words[0].w ^= words[i].w;
  }
#pragma unroll
  for (int i = 0; i < kWrite; ++i) __stcs(out + block * kWrite + i * lanes + threadIdx.x, words[0]);
}

__global__ void EmptyKernel() {}

template <int kRead, int kWrite>
absl::Status Copy(const void* in, void* out, int64_t groups, cudaStream_t stream) {
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, rlk::cuda::GridBlocks(groups, 256));
  return rlk::cuda::Launch(CopyKernel<kRead, kWrite>, blocks, 256, stream,
                           static_cast<const uint4*>(in), static_cast<uint4*>(out), groups);
}

absl::Status DispatchForward(int candidate, int x_dtype, int y_dtype, const void* x, void* y,
                             int64_t n, float cap, cudaStream_t stream) {
  const auto xt = static_cast<DType>(x_dtype), yt = static_cast<DType>(y_dtype);
  if (yt != DType::kF32) return absl::InvalidArgumentError("candidates write F32");
  if (xt == DType::kBF16) return ForwardCandidate<Bf16, float>(candidate, x, y, n, cap, stream);
  if (xt == DType::kF16) return ForwardCandidate<F16, float>(candidate, x, y, n, cap, stream);
  return ForwardCandidate<float, float>(candidate, x, y, n, cap, stream);
}

}  // namespace

RLK_EXPORT const char* rlk_bench_error() { return error_text.c_str(); }
RLK_EXPORT int rlk_bench_candidates() { return kCandidates; }
RLK_EXPORT const char* rlk_bench_candidate_name(int i) { return kCandidateNames[i]; }

RLK_EXPORT int rlk_bench_forward(int x_dtype, int y_dtype, const void* x, void* y, int64_t n,
                                 float cap, void* stream) {
  static const rlk::MethodSignature signature = Signature({"x"}, "y");
  static const rlk::LaunchFn launch = rlk::SoftcapForwardCudaVariants().front().launch;
  const TensorView inputs[] = {View(x_dtype, n, x)};
  return LaunchShipped(signature, launch, inputs, MutableView(y_dtype, n, y), cap, stream);
}

RLK_EXPORT int rlk_bench_backward(int x_dtype, int g_dtype, const void* x, const void* g,
                                  void* grad_x, int64_t n, float cap, void* stream) {
  static const rlk::MethodSignature signature = Signature({"x", "grad_y"}, "grad_x");
  static const rlk::LaunchFn launch = rlk::SoftcapBackwardCudaVariants().front().launch;
  const TensorView inputs[] = {View(x_dtype, n, x), View(g_dtype, n, g)};
  return LaunchShipped(signature, launch, inputs, MutableView(x_dtype, n, grad_x), cap, stream);
}

RLK_EXPORT int rlk_bench_forward_candidate(int candidate, int x_dtype, int y_dtype, const void* x,
                                           void* y, int64_t n, float cap, void* stream) {
  return Report(DispatchForward(candidate, x_dtype, y_dtype, x, y, n, cap,
                                static_cast<cudaStream_t>(stream)));
}

RLK_EXPORT int rlk_bench_backward_candidate(int candidate, const void* x_bf16, const void* g_f32,
                                            void* grad_x, int64_t n, float cap, void* stream) {
  return Report(BackwardCandidate<Bf16, float>(candidate, x_bf16, g_f32, grad_x, n, cap,
                                               static_cast<cudaStream_t>(stream)));
}

// Reads `read` and writes `write` words of 16 bytes for each of `groups` groups.
RLK_EXPORT int rlk_bench_copy(int read, int write, const void* in, void* out, int64_t groups,
                              void* stream_handle) {
  auto stream = static_cast<cudaStream_t>(stream_handle);
  if (read == 1 && write == 2) return Report(Copy<1, 2>(in, out, groups, stream));
  if (read == 2 && write == 1) return Report(Copy<2, 1>(in, out, groups, stream));
  if (read == 3 && write == 1) return Report(Copy<3, 1>(in, out, groups, stream));
  if (read == 1 && write == 1) return Report(Copy<1, 1>(in, out, groups, stream));
  return Report(absl::InvalidArgumentError("no copy with this shape"));
}

RLK_EXPORT int rlk_bench_empty(void* stream) {
  return Report(rlk::cuda::Launch(EmptyKernel, 1, 32, static_cast<cudaStream_t>(stream)));
}

RLK_EXPORT int64_t rlk_bench_digest_scratch(int64_t bytes) {
  return rlk::DigestScratchBytes(bytes);
}

// Enqueues the digest; `node` (device address of the last node) may be null.
RLK_EXPORT int rlk_bench_digest(const void* data, int64_t bytes, void* scratch,
                                int64_t scratch_bytes, const void** node, void* stream) {
  auto last = rlk::EnqueueDigest(
      data, bytes, {static_cast<std::byte*>(scratch), static_cast<size_t>(scratch_bytes)},
      {stream});
  if (!last.ok()) return Report(last.status());
  if (node != nullptr) *node = *last;
  return 0;
}

// The text of the root from the 16 bytes of the last node (host memory), one dimension.
RLK_EXPORT int rlk_bench_digest_text(int dtype, int64_t count, const void* node, char* text,
                                     int text_bytes) {
  std::array<uint8_t, 16> bytes;
  std::memcpy(bytes.data(), node, bytes.size());
  const std::string root = rlk::DigestRoot(static_cast<DType>(dtype), Dims{count}, &bytes).Text();
  if (static_cast<int>(root.size()) >= text_bytes) return 1;
  std::memcpy(text, root.c_str(), root.size() + 1);
  return 0;
}

// The digest of host memory by the cpu's code.
RLK_EXPORT int rlk_bench_digest_cpu(int dtype, int64_t count, const void* data, char* text,
                                    int text_bytes) {
  const std::string root = rlk::ComputeDigest(View(dtype, count, data)).Text();
  if (static_cast<int>(root.size()) >= text_bytes) return 1;
  std::memcpy(text, root.c_str(), root.size() + 1);
  return 0;
}
