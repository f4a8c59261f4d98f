// Up to 64 rows share one pass over the weights. A block has 256 outputs: four warpgroups of 64,
// whose operand A comes from the ring of each warp through registers, while x, packed, goes through
// shared memory with the same stages.
#include <algorithm>

#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"
#include "kernels/device/wgmma_sm90.cuh"
#include "kernels/linear/bf16_packed.cuh"
#include "kernels/linear/launch.cuh"

namespace rlk::linear {
namespace {

template <int kRows>
constexpr int SharedBytes() {
  return kRingBytes + kStages * kRows * kStageInputs * static_cast<int>(sizeof(uint16_t));
}

// One tensor-core step from zero, added in FP32.
template <int kRows>
__device__ __forceinline__ void AddStep(float (&total)[kRows / 2], const uint32_t (&a)[4],
                                        uint64_t b) {
  float part[kRows / 2];
  device::WgmmaFence();
  device::WgmmaRegisters<false>(part, a, b);
  device::WgmmaCommit();
  device::WgmmaWait<0>();
#pragma unroll
  for (int i = 0; i < kRows / 2; ++i) total[i] = arith::Add(total[i], part[i]);
}

template <int kRows>
__device__ __forceinline__ void WriteTile(const Bf16Linear& problem, int64_t first_output,
                                          int64_t first_row, const float (&total)[kRows / 2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t channel = first_output + lane / 4 + half * 8;
    if (channel >= problem.shape.outputs) continue;
    const ChannelWriter writer(problem, channel);
#pragma unroll
    for (int i = 0; i < kRows / 4; ++i) {
      const int64_t row = first_row + i / 2 * 8 + lane % 4 * 2 + i % 2;
      if (row < problem.shape.rows) writer.Write(row, total[i / 2 * 4 + half * 2 + i % 2]);
    }
  }
}

// Items are (tile of outputs, tile of rows), rows fastest, so that blocks that run together read
// the same weights.
template <int kRows>
__global__ void __launch_bounds__(kForwardThreads, 1)
    Bf16ForwardWgmmaKernel(Bf16Linear problem, const uint4* packed, PackedShape shape) {
  extern __shared__ __align__(128) uint4 shared[];
  const WeightRing ring(shared, problem);
  constexpr int kStageWords = kRows * kStageInputs / 8;  // of 16 bytes
  static_assert(kStageWords <= kForwardThreads);
  uint4* const x = shared + kRingBytes / 16;  // [kStages][kStageWords]
  const int warp_output = static_cast<int>(threadIdx.x) / 32 * kWarpOutputs;
  const int64_t tiles = (problem.shape.outputs + kBlockOutputs - 1) / kBlockOutputs;
  const int64_t items = tiles * shape.tiles;

  int64_t next_item = blockIdx.x, next_stage = 0;
  int fill = 0;
  const auto fetch = [&] {
    if (next_item < items) {
      const int64_t output = next_item / shape.tiles * kBlockOutputs + warp_output;
      ring.Fetch(fill, output, next_stage * kStageInputs);
      if (static_cast<int>(threadIdx.x) < kStageWords) {
        const int64_t stage = next_item % shape.tiles * shape.stages + next_stage;
        device::CopyAsync16(x + fill * kStageWords + threadIdx.x,
                            packed + stage * kStageWords + threadIdx.x, true);
      }
      if (++next_stage == shape.stages) {
        next_stage = 0;
        next_item += gridDim.x;
      }
    }
    device::CopyAsyncCommit();
    fill = fill + 1 == kStages ? 0 : fill + 1;
  };
#pragma unroll
  for (int i = 0; i + 1 < kStages; ++i) fetch();

  int at = 0;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    float total[kRows / 2] = {};
    for (int64_t stage = 0; stage < shape.stages; ++stage) {
      device::CopyAsyncWait<kStages - 2>();
      device::WgmmaFenceShared();
      __syncthreads();  // x of this stage is there, and nobody reads the one that is filled next
      fetch();
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        uint32_t first[4], second[4];
        ring.Load(at, step, first, second);
        const uint4* const b = x + at * kStageWords + 2 * step * (kStageWords / kStageSteps);
        AddStep<kRows>(total, first, device::MakeDescriptor(b, kProductBytes, kRowBytes));
        AddStep<kRows>(
            total, second,
            device::MakeDescriptor(b + kStageWords / kStageSteps, kProductBytes, kRowBytes));
      }
      at = at + 1 == kStages ? 0 : at + 1;
    }
    WriteTile<kRows>(problem, item / shape.tiles * kBlockOutputs + warp_output,
                     item % shape.tiles * kRows, total);
  }
}

template <int kRows>
absl::Status LaunchRows(const Bf16Linear& problem, const uint16_t* packed, cudaStream_t stream) {
  RLK_ASSIGN_OR_RETURN(const int processors, MultiprocessorCount());
  const PackedShape shape(problem.shape.rows, problem.shape.inputs);
  const int64_t items = (problem.shape.outputs + kBlockOutputs - 1) / kBlockOutputs * shape.tiles;
  const dim3 grid(static_cast<unsigned>(std::min<int64_t>(processors, items)));
  return LaunchShared(&Bf16ForwardWgmmaKernel<kRows>, grid, kForwardThreads, SharedBytes<kRows>(),
                      stream, problem, reinterpret_cast<const uint4*>(packed), shape);
}

}  // namespace

absl::Status LaunchBf16ForwardWgmma(const Bf16Linear& problem, const uint16_t* packed,
                                    StreamRef stream) {
  switch (TileRows(problem.shape.rows)) {
    case 16:
      return LaunchRows<16>(problem, packed, cuda::CudaStream(stream));
    case 32:
      return LaunchRows<32>(problem, packed, cuda::CudaStream(stream));
    default:
      return LaunchRows<64>(problem, packed, cuda::CudaStream(stream));
  }
}

}  // namespace rlk::linear
