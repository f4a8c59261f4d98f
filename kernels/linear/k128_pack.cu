// x in the order of the k128 forward.
#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"
#include "kernels/device/async_copy.cuh"
#include "kernels/linear/bf16_packed.cuh"
#include "kernels/linear/k128_cuda.h"

namespace rlk::linear {
namespace {

constexpr int kThreads = 256;

// One thread copies one row of a core matrix: eight inputs of a row of x.
__global__ void __launch_bounds__(kThreads)
    K128PackKernel(const uint16_t* x, int64_t rows, int64_t inputs, PackedShape shape,
                   uint4* packed) {
  device::AllowLaunchBehind();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= shape.Elements() / 8) return;
  const int64_t row_in_core = i % 8, core = i / 8 % 2;
  int64_t rest = i / 16;
  const int64_t row_group = rest % (shape.tile_rows / 8);
  rest /= shape.tile_rows / 8;
  const int64_t step = rest % kStageSteps;
  rest /= kStageSteps;
  const int64_t stage = rest % shape.all_stages, tile = rest / shape.all_stages;
  const int64_t row = tile * shape.tile_rows + row_group * 8 + row_in_core;
  const int64_t k = stage * kPackedInputs + step * 16 + core * 8;
  packed[i] = row < rows && k < inputs ? __ldg(reinterpret_cast<const uint4*>(x + row * inputs + k))
                                       : make_uint4(0, 0, 0, 0);
}

}  // namespace

absl::Status LaunchK128Pack(const uint16_t* x, int64_t rows, int64_t inputs, uint16_t* packed,
                            StreamRef stream) {
  const PackedShape shape = K128PackedShape(rows, inputs);
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(shape.Elements() / 8, kThreads));
  return cuda::Launch(&K128PackKernel, blocks, kThreads, cuda::CudaStream(stream), x, rows, inputs,
                      shape, reinterpret_cast<uint4*>(packed));
}

}  // namespace rlk::linear
