// T <= 8 at the rate of the memory: every warp streams its weights once. Larger T: eight rows a
// pass.
#include <algorithm>

#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"
#include "kernels/device/tensor_core.cuh"
#include "kernels/linear/bf16_forward.cuh"
#include "kernels/linear/shared_memory.h"

namespace rlk::linear {
namespace {

constexpr int kRows = 8;  // of a pass
// Of a launch: what a grid's second dimension has room for.
constexpr int64_t kLaunchRows = int64_t{65535} * kRows;

// The 16 bytes of operand B: inputs k .. k + 7 of one row, zero beyond the matrix. x may be what
// the launch ahead wrote: it does not go through the read-only path, which could be read before a
// wait.
__device__ __forceinline__ uint4 LoadX(const uint16_t* row, int64_t k, int64_t inputs) {
  if (row == nullptr || k >= inputs) return make_uint4(0, 0, 0, 0);
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(row + k)
               : "memory");
  return v;
}

__device__ __forceinline__ void AddStep(float (&total)[4], const uint32_t (&a)[4], uint32_t b0,
                                        uint32_t b1) {
  const uint32_t b[2] = {b0, b1};
  float part[4];
  device::MmaStepFromZero(part, a, b);
#pragma unroll
  for (int i = 0; i < 4; ++i) total[i] = arith::Add(total[i], part[i]);
}

// blockIdx.y: rows 8 y .. 8 y + 7 of those from `rows_from` on. Warps take groups of 16 outputs in
// turn; the ring runs on from one group to the next.
__global__ void __launch_bounds__(kForwardThreads, 1)
    Bf16ForwardMmaKernel(Bf16Linear problem, int64_t rows_from) {
  extern __shared__ uint4 shared[];
  const WeightRing ring(shared, problem);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t groups = (problem.shape.outputs + kWarpOutputs - 1) / kWarpOutputs;
  const int64_t blocks = (problem.shape.inputs + kStageInputs - 1) / kStageInputs;
  const int64_t step = int64_t{gridDim.x} * kWarps;
  const int64_t first_row = rows_from + int64_t{blockIdx.y} * kRows;
  const int64_t x_row = first_row + lane / 4;
  const uint16_t* x =
      x_row < problem.shape.rows ? problem.x + x_row * problem.shape.inputs : nullptr;

  int64_t group = int64_t{threadIdx.x / 32} * gridDim.x + blockIdx.x;
  int64_t next_group = group, next_block = 0;
  int fill = 0;
  const auto fetch = [&] {
    if (next_group < groups) {
      ring.Fetch(fill, next_group * kWarpOutputs, next_block * kStageInputs);
      if (++next_block == blocks) {
        next_block = 0;
        next_group += step;
      }
    }
    device::CopyAsyncCommit();
    fill = fill + 1 == kStages ? 0 : fill + 1;
  };
#pragma unroll
  for (int i = 0; i + 1 < kStages; ++i) fetch();
  device::WaitForLaunchAhead();  // from here on x may be read

  int stage = 0;
  for (; group < groups; group += step) {
    float total[4] = {};
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t k = block * kStageInputs + lane % 4 * 8;
      const uint4 x0 = LoadX(x, k, problem.shape.inputs);
      const uint4 x1 = LoadX(x, k + 32, problem.shape.inputs);
      device::CopyAsyncWait<kStages - 2>();
      uint32_t a0[4], a1[4], a2[4], a3[4];
      ring.Load(stage, 0, a0, a1);
      ring.Load(stage, 1, a2, a3);
      fetch();  // into the stage that was read last
      AddStep(total, a0, x0.x, x0.y);
      AddStep(total, a1, x0.z, x0.w);
      AddStep(total, a2, x1.x, x1.y);
      AddStep(total, a3, x1.z, x1.w);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t channel = group * kWarpOutputs + lane / 4 + half * 8;
      const int64_t row = first_row + lane % 4 * 2;
      if (channel >= problem.shape.outputs || row >= problem.shape.rows) continue;
      const ChannelWriter writer(problem, channel);
      writer.Write(row, total[2 * half]);
      if (row + 1 < problem.shape.rows) writer.Write(row + 1, total[2 * half + 1]);
    }
  }
}

}  // namespace

static_assert(kRingBytes <= kSharedBytesPerBlock);

absl::Status LaunchBf16ForwardMma(const Bf16Linear& problem, StreamRef stream, bool after_silu) {
  RLK_ASSIGN_OR_RETURN(const cuda::DeviceShape device, cuda::CurrentDeviceShape());
  const int64_t groups = (problem.shape.outputs + kWarpOutputs - 1) / kWarpOutputs;
  const int64_t blocks = std::min<int64_t>(device.multiprocessors, (groups + kWarps - 1) / kWarps);
  for (int64_t row = 0; row < problem.shape.rows; row += kLaunchRows) {
    const int64_t rows = std::min(problem.shape.rows - row, kLaunchRows);
    RLK_RETURN_IF_ERROR(
        cuda::LaunchWith(&Bf16ForwardMmaKernel,
                         {.blocks = static_cast<unsigned>(blocks),
                          .blocks_y = static_cast<unsigned>((rows + kRows - 1) / kRows),
                          .threads = kForwardThreads,
                          .shared_bytes = kRingBytes,
                          .starts_early = after_silu && row == 0 && device.capability >= 90},
                         cuda::CudaStream(stream), problem, row));
  }
  return absl::OkStatus();
}

}  // namespace rlk::linear
