#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/arith/step_vectors.h"
#include "kernels/core/status.h"
#include "kernels/cuda/buffer.h"
#include "kernels/cuda/device_guard.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/status.h"
#include "kernels/cuda/stream.h"
#include "kernels/device/tensor_core.cuh"
#include "kernels/device/warp.cuh"
#include "kernels/device/wgmma_sm90.cuh"
#include "kernels/linear/step_law.h"

namespace rlk::linear {
namespace {

using arith::StepData;

constexpr int kThreads = 128;
constexpr int kTiles = 2;  // of each kind of data
constexpr int kRows = arith::kStepTileRows, kColumns = arith::kStepTileColumns;
constexpr int kProducts = arith::kStepProducts;
constexpr int kResults = arith::kStepDataCount * kTiles;

// Core matrices of 8 x 8, the two of a row of them beside each other.
__device__ int CoreIndex(int row, int product) {
  return (row / 8 * 2 + product / 8) * 64 + row % 8 * 8 + product % 8;
}

__device__ uint32_t Pair(const uint16_t* tile, int row, int product) {
  return *reinterpret_cast<const uint32_t*>(tile + CoreIndex(row, product));
}

// digests: [kResults]; blockIdx.x: kind of data times kTiles plus the tile.
__global__ void __launch_bounds__(kThreads)
    StepDigestsKernel(bool with_wgmma, unsigned long long* digests) {
  __shared__ __align__(128) uint16_t a[kRows * kProducts];
  __shared__ __align__(128) uint16_t b[kColumns * kProducts];
  const int thread = static_cast<int>(threadIdx.x);
  const auto data = static_cast<StepData>(blockIdx.x / kTiles);
  const uint64_t seed = arith::StepTileSeed(data, blockIdx.x % kTiles);
  for (int i = thread; i < kRows * kProducts; i += kThreads) {
    const int row = i / kProducts, product = i % kProducts;
    a[CoreIndex(row, product)] = arith::DrawTileA(seed, data, row, product);
    if (row < kColumns) b[CoreIndex(row, product)] = arith::DrawTileB(seed, data, row, product);
  }
  if (with_wgmma) device::WgmmaFenceShared();
  __syncthreads();
  const int row = thread / 32 * 16 + thread % 32 / 4, quad = thread % 4;
  const uint32_t left[4] = {Pair(a, row, 2 * quad), Pair(a, row + 8, 2 * quad),
                            Pair(a, row, 2 * quad + 8), Pair(a, row + 8, 2 * quad + 8)};
  const uint32_t right[2] = {Pair(b, row % 8, 2 * quad), Pair(b, row % 8, 2 * quad + 8)};
  float d[4];
  for (int i = 0; i < 4; ++i) {
    d[i] = arith::BitsFloat(arith::DrawTileC(seed, data, row + i / 2 * 8, 2 * quad + i % 2));
  }
  if (with_wgmma) {
    device::WgmmaFence();
    device::WgmmaRegisters<true>(d, left, device::MakeDescriptor(b, 128, 256));
    device::WgmmaCommit();
    device::WgmmaWait<0>();
  } else {
    device::MmaStep(d, left, right);
  }
  unsigned long long sum = 0;
  for (int i = 0; i < 4; ++i) {
    const int index = (row + i / 2 * 8) * kColumns + 2 * quad + i % 2;
    sum += arith::StepDigestTerm(static_cast<uint64_t>(index), arith::FloatBits(d[i]));
  }
  sum = device::WarpSum(sum);
  if (thread % 32 == 0) atomicAdd(digests + blockIdx.x, sum);
}

absl::Status CheckInstruction(bool with_wgmma, cudaStream_t stream,
                              const cuda::DeviceBuffer& digests) {
  RLK_CUDA_RETURN_IF_ERROR(
      cudaMemsetAsync(digests.data(), 0, static_cast<size_t>(digests.bytes()), stream));
  RLK_RETURN_IF_ERROR(cuda::Launch(&StepDigestsKernel, kResults, kThreads, stream, with_wgmma,
                                   reinterpret_cast<unsigned long long*>(digests.data())));
  std::vector<uint64_t> results(kResults);
  RLK_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(results.data(), digests.data(),
                                           static_cast<size_t>(digests.bytes()),
                                           cudaMemcpyDeviceToHost, stream));
  RLK_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream));
  for (int i = 0; i < kResults; ++i) {
    const auto data = static_cast<StepData>(i / kTiles);
    if (results[static_cast<size_t>(i)] == arith::StepTileDigest(data, i % kTiles)) continue;
    return absl::FailedPreconditionError(absl::StrCat(with_wgmma ? "wgmma" : "mma.sync",
                                                      " gives other bits (",
                                                      arith::kStepDataNames[i / kTiles], ")"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCudaStepLaw(int ordinal) {
  const cuda::DeviceGuard guard(ordinal);
  RLK_CUDA_RETURN_IF_ERROR(guard.error());
  int major = 0, minor = 0;
  RLK_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal));
  RLK_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal));
  RLK_ASSIGN_OR_RETURN(const cuda::Stream stream, cuda::Stream::Create());
  RLK_ASSIGN_OR_RETURN(const cuda::DeviceBuffer digests,
                       cuda::DeviceBuffer::Allocate(kResults * sizeof(uint64_t)));
  RLK_RETURN_IF_ERROR(CheckInstruction(false, stream.get(), digests));
  if (major != 9 || minor != 0) return absl::OkStatus();
  return CheckInstruction(true, stream.get(), digests);
}

}  // namespace rlk::linear
