// What the benchmark script times, behind a C interface: the shipped launchers, copies with the
// same bytes, an empty kernel, the digest. Pointers are device memory, `stream` is a cudaStream_t.
// 0 is success; otherwise rlk_bench_error says why.
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

#define RLK_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using rlk::Dims;
using rlk::DType;
using rlk::KernelArgs;
using rlk::MutableTensorView;
using rlk::TensorView;

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

constexpr int kCopyThreads = 256;

// Copies with the bytes of an operator: reads `read_words` of 16 bytes for every `write_words`.
// The words written are made of the words read, so that no load can be left out.
template <int kRead, int kWrite, bool kStreaming>
__global__ void __launch_bounds__(kCopyThreads)
    CopyKernel(const uint4* __restrict__ in, uint4* __restrict__ out, int64_t groups) {
  const int64_t block = int64_t{blockIdx.x} * kCopyThreads;
  const int64_t group = block + threadIdx.x;
  if (group >= groups) return;
  const int64_t lanes = groups - block < kCopyThreads ? groups - block : kCopyThreads;
  uint4 words[kRead];
#pragma unroll
  for (int i = 0; i < kRead; ++i) {
    const uint4* word = in + block * kRead + i * lanes + threadIdx.x;
    words[i] = kStreaming ? __ldcs(word) : __ldg(word);
  }
#pragma unroll
  for (int i = 1; i < kRead; ++i) {
    words[0].x ^= words[i].x;
    words[0].y ^= words[i].y;
    words[0].z ^= words[i].z;
    words[0].w ^= words[i].w;
  }
#pragma unroll
  for (int i = 0; i < kWrite; ++i) {
    uint4* word = out + block * kWrite + i * lanes + threadIdx.x;
    if (kStreaming) {
      __stcs(word, words[0]);
    } else {
      *word = words[0];
    }
  }
}

__global__ void EmptyKernel() {}

template <int kRead, int kWrite, bool kStreaming>
absl::Status CopyWith(const void* in, void* out, int64_t groups, cudaStream_t stream) {
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, rlk::cuda::GridBlocks(groups, kCopyThreads));
  return rlk::cuda::Launch(CopyKernel<kRead, kWrite, kStreaming>, blocks, kCopyThreads, stream,
                           static_cast<const uint4*>(in), static_cast<uint4*>(out), groups);
}

template <int kRead, int kWrite>
absl::Status Copy(bool streaming, const void* in, void* out, int64_t groups, cudaStream_t stream) {
  return streaming ? CopyWith<kRead, kWrite, true>(in, out, groups, stream)
                   : CopyWith<kRead, kWrite, false>(in, out, groups, stream);
}

}  // namespace

RLK_EXPORT const char* rlk_bench_error() { return error_text.c_str(); }

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

// Reads `read` and writes `write` words of 16 bytes for each of `groups` groups, with streaming
// cache hints or without.
RLK_EXPORT int rlk_bench_copy(int read, int write, int streaming, const void* in, void* out,
                              int64_t groups, void* stream_handle) {
  auto stream = static_cast<cudaStream_t>(stream_handle);
  if (read == 1 && write == 2) return Report(Copy<1, 2>(streaming != 0, in, out, groups, stream));
  if (read == 2 && write == 1) return Report(Copy<2, 1>(streaming != 0, in, out, groups, stream));
  if (read == 3 && write == 1) return Report(Copy<3, 1>(streaming != 0, in, out, groups, stream));
  if (read == 3 && write == 2) return Report(Copy<3, 2>(streaming != 0, in, out, groups, stream));
  if (read == 1 && write == 1) return Report(Copy<1, 1>(streaming != 0, in, out, groups, stream));
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
