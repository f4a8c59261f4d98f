#include <algorithm>
#include <cstddef>

#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"
#include "kernels/linear/cuda.h"
#include "kernels/linear/fp32_forward.cuh"

namespace rlk::linear {
namespace {

// From here on a block of shared memory per tile of rows pays.
constexpr int64_t kFewRows = 8;
// Shorter rows have little to stream: a warp takes more of them.
constexpr int64_t kShortInputs = 1024;
constexpr unsigned kGridYMax = 65535;
constexpr size_t kStaticSharedBytes = size_t{48} << 10;

bool HasDependentLaunch() {
  int device = 0, major = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         major >= 9;
}

absl::Status LaunchKernel(void (*kernel)(Fp32Forward), dim3 grid, dim3 threads, size_t shared_bytes,
                          const Fp32Forward& problem, StreamRef stream, Overlap overlap) {
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = cuda::CudaStream(stream);
  config.attrs = &early;
  config.numAttrs = overlap == Overlap::kBeginEarly && HasDependentLaunch() ? 1 : 0;
  Fp32Forward argument = problem;
  void* arguments[] = {&argument};
  const auto* function = reinterpret_cast<const void*>(kernel);
  if (shared_bytes > kStaticSharedBytes) {
    RLK_CUDA_RETURN_IF_ERROR(cudaFuncSetAttribute(
        function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)));
  }
  RLK_CUDA_RETURN_IF_ERROR(cudaLaunchKernelExC(&config, function, arguments));
  return absl::OkStatus();
}

template <int kRows, int kOutputs, int kDepth>
absl::Status LaunchRows(const Fp32Forward& problem, StreamRef stream, Overlap overlap) {
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(problem.shape.outputs, kOutputs));
  const auto tiles = static_cast<unsigned>((problem.shape.rows + kRows - 1) / kRows);
  return LaunchKernel(Fp32ForwardRowsKernel<kRows, kOutputs, kDepth>, dim3(blocks, tiles), 32, 0,
                      problem, stream, overlap);
}

template <int kRows>
absl::Status LaunchFewRows(const Fp32Forward& problem, StreamRef stream, Overlap overlap) {
  if (problem.shape.inputs < kShortInputs) return LaunchRows<kRows, 4, 1>(problem, stream, overlap);
  // With 8 rows x is read often enough from the first cache that two outputs have to share it. The
  // depth is what the registers hold.
  constexpr int kOutputs = kRows == 8 ? 2 : 1;
  constexpr int kDepth = kRows <= 2 ? 4 : 2;
  return LaunchRows<kRows, kOutputs, kDepth>(problem, stream, overlap);
}

// Whether x of these rows fits into a multiprocessor's shared memory, and there is enough to
// stream.
bool FitsShared(const Fp32Forward& problem, int64_t bytes) {
  int device = 0, limit = 0;
  return problem.shape.inputs >= kShortInputs && cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) ==
             cudaSuccess &&
         bytes <= limit;
}

// Two to eight rows. All blocks run at once and have as many warps as that takes, up to
// kSharedWarps.
template <int kRows>
absl::Status LaunchShared(const Fp32Forward& problem, StreamRef stream, Overlap overlap) {
  constexpr int kOutputs = 2, kDepth = 4;
  const int64_t bytes = kRows * problem.shape.inputs * static_cast<int64_t>(sizeof(float));
  if (!FitsShared(problem, bytes)) return LaunchFewRows<kRows>(problem, stream, overlap);
  RLK_ASSIGN_OR_RETURN(const cuda::DeviceShape device, cuda::CurrentDeviceShape());
  const int64_t warps = (problem.shape.outputs + kOutputs - 1) / kOutputs;
  const int64_t each = std::clamp<int64_t>(
      (warps + device.multiprocessors - 1) / device.multiprocessors, 1, kSharedWarps);
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(warps, each));
  return LaunchKernel(Fp32ForwardSharedKernel<kRows, kOutputs, kDepth>, blocks,
                      dim3(32, static_cast<unsigned>(each)), static_cast<size_t>(bytes), problem,
                      stream, overlap);
}

// Rows are the grid's first dimension: blocks that run together share their weights.
absl::Status LaunchTiles(const Fp32Forward& problem, StreamRef stream, Overlap overlap) {
  RLK_ASSIGN_OR_RETURN(const unsigned rows, cuda::GridBlocks(problem.shape.rows, kTileRows));
  RLK_ASSIGN_OR_RETURN(const unsigned outputs,
                       cuda::GridBlocks(problem.shape.outputs, kTileOutputs));
  const unsigned across = std::min(outputs, kGridYMax);
  return LaunchKernel(Fp32ForwardTileKernel, dim3(rows, across, (outputs + across - 1) / across),
                      kTileWarps * 32, 0, problem, stream, overlap);
}

}  // namespace

absl::Status LaunchForwardFp32(const Fp32Forward& problem, StreamRef stream, Overlap overlap) {
  if (problem.y == nullptr && problem.pre == nullptr) return absl::OkStatus();
  const int64_t rows = problem.shape.rows;
  if (rows == 1) return LaunchFewRows<1>(problem, stream, overlap);
  if (rows == 2) return LaunchShared<2>(problem, stream, overlap);
  if (rows <= 4) return LaunchShared<4>(problem, stream, overlap);
  if (rows <= kFewRows) return LaunchShared<8>(problem, stream, overlap);
  return LaunchTiles(problem, stream, overlap);
}

}  // namespace rlk::linear
