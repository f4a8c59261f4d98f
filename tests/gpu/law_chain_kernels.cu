// Long reductions: the accumulator is carried over thousands of steps, with and without promotion.
#include "tests/gpu/law_kernels.cuh"
#include "tests/gpu/law_kernels.h"

namespace rlk::gpu_test {
namespace {

using arith::StepData;

constexpr int kColumns = arith::kStepTileColumns;
constexpr int kSteps = 8;  // of a chunk
constexpr int kTileA = kRows * kProducts, kTileB = kColumns * kProducts;

// The accumulators of one thread, each of four outputs.
struct Chains {
  float mma[4] = {}, shared[4] = {}, registers[4] = {};
  float promoted[4] = {};
  float single_mma[4] = {}, single_wgmma[4] = {};
};
struct LawChains {
  uint32_t chain[4] = {};
  float promoted[4] = {}, single[4] = {};
};

struct Tiles {
  uint16_t a[kSteps][kTileA];
  uint16_t b[kSteps][kTileB];
  uint16_t zero[kTileA];
};

// The accumulators are chained without a wait between the steps of a chunk.
template <bool kZeroParts>
__device__ __forceinline__ void RunChunk(const Tiles& tiles, Chains& chains) {
  const Lane lane;
  const uint64_t zero_at = device::MakeDescriptor(tiles.zero, kProductBytes, kRowBytes);
  const uint32_t zeros[4] = {};
  float chunk[4];
  device::WgmmaFence();
  if constexpr (kZeroParts) {
#pragma unroll
    for (int step = 0; step < 2 * kSteps; ++step) {
      const uint64_t b_at =
          device::MakeDescriptor(tiles.b[step % kSteps], kProductBytes, kRowBytes);
      device::WgmmaShared<true>(chains.shared, zero_at, b_at);
      device::WgmmaRegisters<true>(chains.registers, zeros, b_at);
      uint32_t right[2];
      LoadB(tiles.b[step % kSteps], lane.row % 8, lane.quad, right);
      device::MmaStep(chains.mma, zeros, right);
    }
  }
  uint32_t left[kSteps][4];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) LoadA(tiles.a[step], lane.row, lane.quad, left[step]);
  device::WgmmaFence();
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const uint64_t b_at = device::MakeDescriptor(tiles.b[step], kProductBytes, kRowBytes);
    device::WgmmaShared<true>(
        chains.shared, device::MakeDescriptor(tiles.a[step], kProductBytes, kRowBytes), b_at);
    device::WgmmaRegisters<true>(chains.registers, left[step], b_at);
    if (step == 0) {
      device::WgmmaRegisters<false>(chunk, left[step], b_at);
    } else {
      device::WgmmaRegisters<true>(chunk, left[step], b_at);
    }
  }
  device::WgmmaCommit();
  device::WgmmaWait<0>();
  for (int i = 0; i < 4; ++i) chains.promoted[i] = arith::Add(chains.promoted[i], chunk[i]);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    uint32_t right[2];
    LoadB(tiles.b[step], lane.row % 8, lane.quad, right);
    device::MmaStep(chains.mma, left[step], right);
    float one[4], other[4];
    device::MmaStepFromZero(one, left[step], right);
    device::WgmmaFence();
    device::WgmmaRegisters<false>(other, left[step],
                                  device::MakeDescriptor(tiles.b[step], kProductBytes, kRowBytes));
    device::WgmmaCommit();
    device::WgmmaWait<0>();
    for (int i = 0; i < 4; ++i) {
      chains.single_mma[i] = arith::Add(chains.single_mma[i], one[i]);
      chains.single_wgmma[i] = arith::Add(chains.single_wgmma[i], other[i]);
    }
  }
}

// Only the steps whose operands are not all zero.
__device__ void LawChunk(const Tiles& tiles, int steps, LawChains& chains) {
  const Lane lane;
  for (int i = 0; i < 4; ++i) {
    const int row = lane.OutputRow(i), column = lane.OutputColumn(i);
    uint32_t chunk = 0;
    for (int step = 0; step < steps; ++step) {
      const uint16_t* a = tiles.a[step];
      const uint16_t* b = tiles.b[step];
      chains.chain[i] = Law(a, b, row, column, chains.chain[i]);
      chunk = Law(a, b, row, column, chunk);
      chains.single[i] = arith::Add(chains.single[i], arith::BitsFloat(Law(a, b, row, column, 0)));
    }
    chains.promoted[i] = arith::Add(chains.promoted[i], arith::BitsFloat(chunk));
  }
}

__device__ bool Differs(float x, float y) { return arith::FloatBits(x) != arith::FloatBits(y); }

__device__ void Compare(const Chains& chains, const LawChains& law, ChainCounts& counts) {
  for (int i = 0; i < 4; ++i) {
    const float chain = arith::BitsFloat(law.chain[i]);
    counts.comparisons += 1;
    counts.mma += Differs(chains.mma[i], chain);
    counts.shared += Differs(chains.shared[i], chain);
    counts.registers += Differs(chains.registers[i], chain);
    counts.promoted += Differs(chains.promoted[i], law.promoted[i]);
    counts.single_mma += Differs(chains.single_mma[i], law.single[i]);
    counts.single_wgmma += Differs(chains.single_wgmma[i], law.single[i]);
  }
}

template <bool kZeroParts>
__global__ void __launch_bounds__(kLawThreads)
    ChainsKernel(ChainCounts* all, StepData data, ChainShape shape, uint64_t first) {
  __shared__ __align__(128) Tiles tiles;
  Chains chains;
  LawChains law;
  ChainCounts mine;
  for (int i = static_cast<int>(threadIdx.x); i < kTileA; i += kLawThreads) tiles.zero[i] = 0;
  for (int64_t chunk = 0; chunk < shape.chunks; ++chunk) {
    const int steps = chunk + 1 == shape.chunks ? shape.tail_steps : kSteps;
    __syncthreads();
    for (int step = 0; step < kSteps; ++step) {
      const uint64_t number = (first + blockIdx.x) * 1000003 + static_cast<uint64_t>(chunk) * 8 +
                              static_cast<uint64_t>(step);
      const uint64_t seed = arith::StepTileSeed(data, number);
      FillA(tiles.a[step], seed, data);
      FillB(tiles.b[step], kColumns, seed, data);
      if (step < steps) continue;
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < kTileA; i += kLawThreads) {
        tiles.a[step][i] = 0;
        if (i < kTileB) tiles.b[step][i] = 0;
      }
    }
    PublishTiles();
    RunChunk<kZeroParts>(tiles, chains);
    LawChunk(tiles, steps, law);
    Compare(chains, law, mine);
  }
  AddCount(&all->comparisons, mine.comparisons);
  AddCount(&all->mma, mine.mma);
  AddCount(&all->shared, mine.shared);
  AddCount(&all->registers, mine.registers);
  AddCount(&all->promoted, mine.promoted);
  AddCount(&all->single_mma, mine.single_mma);
  AddCount(&all->single_wgmma, mine.single_wgmma);
}

}  // namespace

ChainCounts CompareChains(StepData data, const ChainShape& shape, uint64_t first, int64_t tiles) {
  return RunCounted<ChainCounts>([&](ChainCounts* counts, cudaStream_t stream) {
    const auto kernel = shape.zero_parts ? &ChainsKernel<true> : &ChainsKernel<false>;
    return cuda::Launch(kernel, static_cast<unsigned>(tiles), kLawThreads, stream, counts, data,
                        shape, first);
  });
}

}  // namespace rlk::gpu_test
