// What the comparison of elements and that of rows share on a CUDA device. Internal to this folder.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/compare/compare.h"
#include "kernels/compare/element.h"
#include "kernels/core/status.h"
#include "kernels/core/stream_ref.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/status.h"
#include "kernels/cuda/stream.h"

namespace rlk::compare {

inline constexpr int kThreads = 256;
inline constexpr int kWarps = kThreads / kLanes;
inline constexpr int64_t kAlignment = 256;

inline int64_t AlignUp(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

inline absl::Status Broken(const char* message) {
  return MakeError(absl::StatusCode::kInternal, {Reason::kInternal, "compare", {}, {}}, message);
}

// As WithFormat; INTERNAL without a dtype.
template <typename Function>
absl::Status WithKnownFormat(DType dtype, const Function& f) {
  if (dtype == DType::kUnspecified) return Broken("a tensor without a dtype");
  return WithFormat(dtype, f);
}

// Brings [begin, end) of the scratch memory to the same place of the host's, and waits.
inline absl::Status Fetch(int64_t begin, int64_t end, std::span<std::byte> scratch,
                          std::span<std::byte> pinned, StreamRef stream) {
  RLK_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(pinned.data() + begin, scratch.data() + begin,
                                           static_cast<size_t>(end - begin), cudaMemcpyDeviceToHost,
                                           cuda::CudaStream(stream)));
  RLK_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(cuda::CudaStream(stream)));
  return absl::OkStatus();
}

}  // namespace rlk::compare
