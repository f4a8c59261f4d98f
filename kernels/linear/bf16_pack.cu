// x in the order of the wgmma kernel, and the SiLU that feeds the linear of AdaLN.
#include "kernels/core/status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"
#include "kernels/device/async_copy.cuh"
#include "kernels/device/vector_access.cuh"
#include "kernels/linear/activation.cuh"
#include "kernels/linear/bf16_cuda.h"
#include "kernels/linear/bf16_packed.cuh"

namespace rlk::linear {
namespace {

constexpr int kThreads = 256;

// One thread makes the 8 products of one row of a core matrix: those of quads 0 .. 3, two each.
// Source(row, k) gives the BF16 bits of an element; it is not asked beyond the matrix.
template <typename Source>
__global__ void __launch_bounds__(kThreads)
    PackKernel(Source source, int64_t rows, int64_t inputs, PackedShape shape, uint4* packed) {
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
  const int64_t k0 = stage * kPackedInputs + step / 2 * 32 + step % 2 * 4 + core * 2;
  uint32_t words[4];
#pragma unroll
  for (int quad = 0; quad < 4; ++quad) {
    const int64_t k = k0 + quad * 8;
    const bool present = row < rows && k < inputs;
    const uint32_t low = present ? source(row, k) : 0, high = present ? source(row, k + 1) : 0;
    words[quad] = low | high << 16;
  }
  packed[i] = make_uint4(words[0], words[1], words[2], words[3]);
}

struct Copy {
  const uint16_t* x;  // [T, K]
  int64_t inputs;
  __device__ uint32_t operator()(int64_t row, int64_t k) const { return x[row * inputs + k]; }
};

template <SiluKind kKind>
struct SiluCast {
  const float* temb;  // [T, K]
  int64_t inputs;
  __device__ uint32_t operator()(int64_t row, int64_t k) const {
    const float z = temb[row * inputs + k];
    const float a =
        DeviceActivate(kKind == SiluKind::kPortable ? Activation::kSilu : Activation::kSiluCuda, z);
    return device::FromFloat<device::Bf16>(a).bits;
  }
};

template <typename Source>
__global__ void __launch_bounds__(kThreads)
    PlainKernel(Source source, int64_t inputs, int64_t elements, uint16_t* plain) {
  device::AllowLaunchBehind();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < elements) plain[i] = static_cast<uint16_t>(source(i / inputs, i % inputs));
}

template <typename Source>
absl::Status Pack(const Source& source, int64_t rows, int64_t inputs, uint16_t* packed,
                  cudaStream_t stream) {
  const PackedShape shape = MmaPackedShape(rows, inputs);
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(shape.Elements() / 8, kThreads));
  return cuda::Launch(&PackKernel<Source>, blocks, kThreads, stream, source, rows, inputs, shape,
                      reinterpret_cast<uint4*>(packed));
}

template <SiluKind kKind>
absl::Status Silu(const float* temb, int64_t rows, int64_t inputs, uint16_t* plain,
                  uint16_t* packed, cudaStream_t stream) {
  const SiluCast<kKind> source{temb, inputs};
  if (packed != nullptr) RLK_RETURN_IF_ERROR(Pack(source, rows, inputs, packed, stream));
  if (plain == nullptr) return absl::OkStatus();
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(rows * inputs, kThreads));
  return cuda::Launch(&PlainKernel<SiluCast<kKind>>, blocks, kThreads, stream, source, inputs,
                      rows * inputs, plain);
}

}  // namespace

absl::Status LaunchBf16Pack(const uint16_t* x, int64_t rows, int64_t inputs, uint16_t* packed,
                            StreamRef stream) {
  return Pack(Copy{x, inputs}, rows, inputs, packed, cuda::CudaStream(stream));
}

absl::Status LaunchBf16Silu(SiluKind kind, const float* temb, int64_t rows, int64_t inputs,
                            uint16_t* plain, uint16_t* packed, StreamRef stream) {
  const auto silu =
      kind == SiluKind::kPortable ? &Silu<SiluKind::kPortable> : &Silu<SiluKind::kCuda>;
  return silu(temb, rows, inputs, plain, packed, cuda::CudaStream(stream));
}

}  // namespace rlk::linear
