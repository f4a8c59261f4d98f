// What the kernels of the law tests share: tiles in shared memory and the law on them.
#pragma once

#include <cstdint>

#include "kernels/arith/step_vectors.h"
#include "kernels/arith/tensor_step.h"
#include "kernels/cuda/launch.h"
#include "kernels/device/tensor_core.cuh"
#include "kernels/device/warp.cuh"
#include "kernels/device/wgmma_sm90.cuh"
#include "tests/gpu/device_memory.h"

namespace rlk::gpu_test {

inline constexpr int kLawThreads = 128;
inline constexpr int kRows = arith::kStepTileRows;
inline constexpr int kProducts = arith::kStepProducts;
// Bytes between neighbouring core matrices of a tile with two of them in a row.
inline constexpr int kProductBytes = 128, kRowBytes = 256;

// Where operand (row, product) stands: core matrices of 8 x 8, those of a row beside each other.
__device__ __forceinline__ int CoreIndex(int row, int product) {
  return (row / 8 * 2 + product / 8) * 64 + row % 8 * 8 + product % 8;
}

// The place of this thread in a warpgroup's 64 x 8 tile.
struct Lane {
  int row, quad;
  __device__ Lane()
      : row(static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4),
        quad(static_cast<int>(threadIdx.x) % 4) {}
  // Of output i: 0, 1 in the first row, 2, 3 eight rows below.
  __device__ int OutputRow(int i) const { return row + i / 2 * 8; }
  __device__ int OutputColumn(int i) const { return 2 * quad + i % 2; }
};

__device__ __forceinline__ uint32_t Pair(const uint16_t* tile, int row, int product) {
  return *reinterpret_cast<const uint32_t*>(tile + CoreIndex(row, product));
}

__device__ __forceinline__ void LoadA(const uint16_t* tile, int row, int quad, uint32_t (&a)[4]) {
  a[0] = Pair(tile, row, 2 * quad);
  a[1] = Pair(tile, row + 8, 2 * quad);
  a[2] = Pair(tile, row, 2 * quad + 8);
  a[3] = Pair(tile, row + 8, 2 * quad + 8);
}

__device__ __forceinline__ void LoadB(const uint16_t* tile, int column, int quad,
                                      uint32_t (&b)[2]) {
  b[0] = Pair(tile, column, 2 * quad);
  b[1] = Pair(tile, column, 2 * quad + 8);
}

// The law on row `row` of a and row `column` of b. Not inline: a thread has up to 128 outputs.
static __device__ __noinline__ uint32_t Law(const uint16_t* a, const uint16_t* b, int row,
                                            int column, uint32_t c) {
  uint16_t x[kProducts], y[kProducts];
#pragma unroll
  for (int i = 0; i < kProducts; ++i) {
    x[i] = a[CoreIndex(row, i)];
    y[i] = b[CoreIndex(column, i)];
  }
  return arith::TensorStep(x, y, c);
}

// Not inline either: their code is long, and tests do not wait for it.
static __device__ __noinline__ uint16_t OperandA(uint64_t seed, arith::StepData data, int row,
                                                 int product) {
  return arith::DrawTileA(seed, data, row, product);
}
static __device__ __noinline__ uint16_t OperandB(uint64_t seed, arith::StepData data, int column,
                                                 int product) {
  return arith::DrawTileB(seed, data, column, product);
}
static __device__ __noinline__ uint32_t AccumulatorC(uint64_t seed, arith::StepData data, int row,
                                                     int column) {
  return arith::DrawTileC(seed, data, row, column);
}

__device__ __forceinline__ void FillA(uint16_t* tile, uint64_t seed, arith::StepData data) {
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kProducts; i += kLawThreads) {
    tile[CoreIndex(i / kProducts, i % kProducts)] =
        OperandA(seed, data, i / kProducts, i % kProducts);
  }
}

__device__ __forceinline__ void FillB(uint16_t* tile, int columns, uint64_t seed,
                                      arith::StepData data) {
  for (int i = static_cast<int>(threadIdx.x); i < columns * kProducts; i += kLawThreads) {
    tile[CoreIndex(i / kProducts, i % kProducts)] =
        OperandB(seed, data, i / kProducts, i % kProducts);
  }
}

// Writes of all threads to shared memory are seen by wgmma and by each other.
__device__ __forceinline__ void PublishTiles() {
  device::WgmmaFenceShared();
  __syncthreads();
}

__device__ __forceinline__ void AddCount(unsigned long long* count, unsigned long long value) {
  value = device::WarpSum(value);
  if (threadIdx.x % 32 == 0 && value != 0) atomicAdd(count, value);
}

// The counts that `launch(counts, stream)` leaves in device memory.
template <typename Counts, typename Launch>
Counts RunCounted(const Launch& launch) {
  const cuda::DeviceBuffer counts = NewBuffer(sizeof(Counts));
  Fill(counts.data(), 0, counts.bytes());
  const cuda::Stream stream = NewStream();
  const absl::Status launched = launch(reinterpret_cast<Counts*>(counts.data()), stream.get());
  Check(launched.ok() ? cudaSuccess : cudaErrorUnknown, "a launch of a law kernel");
  RLK_GPU_CHECK(cudaStreamSynchronize(stream.get()));
  return Download<Counts>(counts.data(), 1).front();
}

// Blocks of a persistent grid: no more than there are tiles.
inline unsigned LawBlocks(int64_t tiles) {
  constexpr int64_t kBlocks = 132 * 8;
  return static_cast<unsigned>(tiles < kBlocks ? tiles : kBlocks);
}

}  // namespace rlk::gpu_test
