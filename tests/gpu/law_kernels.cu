#include "tests/gpu/law_kernels.cuh"
#include "tests/gpu/law_kernels.h"

namespace rlk::gpu_test {
namespace {

using arith::StepData;

constexpr int kColumns = arith::kStepTileColumns;

__device__ void CountKind(uint32_t bits, LawCounts& counts) {
  const uint32_t magnitude = bits & 0x7fffffffu;
  counts.zeros += magnitude == 0;
  counts.subnormals += magnitude != 0 && magnitude < 0x00800000u;
  counts.specials += magnitude >= 0x7f800000u;
}

__device__ void AddCounts(const LawCounts& mine, LawCounts* all) {
  AddCount(&all->outputs, mine.outputs);
  AddCount(&all->mma, mine.mma);
  AddCount(&all->swapped, mine.swapped);
  AddCount(&all->shared, mine.shared);
  AddCount(&all->registers, mine.registers);
  AddCount(&all->from_zero, mine.from_zero);
  AddCount(&all->zeros, mine.zeros);
  AddCount(&all->subnormals, mine.subnormals);
  AddCount(&all->specials, mine.specials);
}

// b as operand A (its eight rows twice) and a as operand B, for the warp's sixteen rows of a.
__device__ void SwappedStep(const uint16_t* a, const uint16_t* b, const float (&c)[4],
                            float (*exchange)[kColumns], float (&d)[4]) {
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const int group = static_cast<int>(threadIdx.x) % 32 / 4;
  const Lane lane;
  for (int i = 0; i < 4; ++i) exchange[lane.OutputRow(i)][lane.OutputColumn(i)] = c[i];
  __syncwarp();
  uint32_t rows[4] = {Pair(b, group, 2 * lane.quad), 0, Pair(b, group, 2 * lane.quad + 8), 0};
  rows[1] = rows[0];
  rows[3] = rows[2];
  for (int half = 0; half < 2; ++half) {
    const int first = warp_row + 8 * half;
    uint32_t columns[2];
    LoadB(a, first + group, lane.quad, columns);
    float out[4];
    for (int i = 0; i < 2; ++i) out[i] = out[2 + i] = exchange[first + 2 * lane.quad + i][group];
    __syncwarp();
    device::MmaStep(out, rows, columns);
    for (int i = 0; i < 2; ++i) exchange[first + 2 * lane.quad + i][group] = out[i];
    __syncwarp();
  }
  for (int i = 0; i < 4; ++i) d[i] = exchange[lane.OutputRow(i)][lane.OutputColumn(i)];
  __syncwarp();
}

__global__ void __launch_bounds__(kLawThreads)
    StepsKernel(LawCounts* all, StepData data, uint64_t first, int64_t tiles) {
  __shared__ __align__(128) uint16_t a[kRows * kProducts];
  __shared__ __align__(128) uint16_t b[kColumns * kProducts];
  __shared__ float exchange[kRows][kColumns];
  const Lane lane;
  LawCounts mine;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const uint64_t seed = arith::StepTileSeed(data, first + static_cast<uint64_t>(tile));
    __syncthreads();
    FillA(a, seed, data);
    FillB(b, kColumns, seed, data);
    PublishTiles();
    float mma[4], shared[4], registers[4], swapped[4], c[4];
    for (int i = 0; i < 4; ++i) {
      c[i] = arith::BitsFloat(AccumulatorC(seed, data, lane.OutputRow(i), lane.OutputColumn(i)));
      mma[i] = shared[i] = registers[i] = c[i];
    }
    uint32_t left[4], right[2];
    LoadA(a, lane.row, lane.quad, left);
    LoadB(b, lane.row % 8, lane.quad, right);
    device::MmaStep(mma, left, right);
    SwappedStep(a, b, c, exchange, swapped);
    device::WgmmaFence();
    const uint64_t b_at = device::MakeDescriptor(b, kProductBytes, kRowBytes);
    device::WgmmaShared<true>(shared, device::MakeDescriptor(a, kProductBytes, kRowBytes), b_at);
    device::WgmmaRegisters<true>(registers, left, b_at);
    device::WgmmaCommit();
    device::WgmmaWait<0>();
    for (int i = 0; i < 4; ++i) {
      const uint32_t law =
          Law(a, b, lane.OutputRow(i), lane.OutputColumn(i), arith::FloatBits(c[i]));
      mine.outputs += 1;
      mine.mma += arith::FloatBits(mma[i]) != law;
      mine.swapped += arith::FloatBits(swapped[i]) != law;
      mine.shared += arith::FloatBits(shared[i]) != law;
      mine.registers += arith::FloatBits(registers[i]) != law;
      CountKind(law, mine);
    }
  }
  AddCounts(mine, all);
}

enum class Form { kShared, kRegisters, kSharedFromZero, kRegistersFromZero };

// Outputs of this thread whose bits are not the law's. The forms from zero begin with NaN.
template <Form kForm, int kWide>
__device__ __forceinline__ unsigned CountDiffering(const uint16_t* a, const uint16_t* b,
                                                   uint64_t seed, StepData data) {
  constexpr int kOutputs = kWide / 2;
  constexpr bool kFromZero = kForm == Form::kSharedFromZero || kForm == Form::kRegistersFromZero;
  const Lane lane;
  const uint64_t b_at = device::MakeDescriptor(b, kProductBytes, kRowBytes);
  const auto accumulator = [&](int i) {
    return AccumulatorC(seed, data, lane.OutputRow(i % 4), i / 4 * 8 + lane.OutputColumn(i % 4));
  };
  const uint32_t nan = 0x7fc00000u | (static_cast<uint32_t>(seed) & 0xffffu);
  float d[kOutputs];
#pragma unroll
  for (int i = 0; i < kOutputs; ++i) {
    d[i] = arith::BitsFloat(kFromZero ? nan + i : accumulator(i));
  }
  uint32_t left[4];
  LoadA(a, lane.row, lane.quad, left);
  device::WgmmaFence();
  if constexpr (kForm == Form::kShared || kForm == Form::kSharedFromZero) {
    const uint64_t a_at = device::MakeDescriptor(a, kProductBytes, kRowBytes);
    device::WgmmaShared<!kFromZero>(d, a_at, b_at);
  } else {
    device::WgmmaRegisters<!kFromZero>(d, left, b_at);
  }
  device::WgmmaCommit();
  device::WgmmaWait<0>();
  unsigned differing = 0;
#pragma unroll
  for (int i = 0; i < kOutputs; ++i) {
    const int row = lane.OutputRow(i % 4), column = i / 4 * 8 + lane.OutputColumn(i % 4);
    const uint32_t c = kFromZero ? 0u : accumulator(i);
    differing += arith::FloatBits(d[i]) != Law(a, b, row, column, c);
  }
  return differing;
}

template <int kWide>
__global__ void __launch_bounds__(kLawThreads)
    ColumnsKernel(LawCounts* all, StepData data, uint64_t first, int64_t tiles) {
  __shared__ __align__(128) uint16_t a[kRows * kProducts];
  __shared__ __align__(128) uint16_t b[kWide * kProducts];
  LawCounts mine;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const uint64_t seed = arith::StepTileSeed(data, first + static_cast<uint64_t>(tile));
    __syncthreads();
    FillA(a, seed, data);
    FillB(b, kWide, seed, data);
    PublishTiles();
    mine.outputs += kWide / 2;
    mine.shared += CountDiffering<Form::kShared, kWide>(a, b, seed, data);
    mine.registers += CountDiffering<Form::kRegisters, kWide>(a, b, seed, data);
    mine.from_zero += CountDiffering<Form::kSharedFromZero, kWide>(a, b, seed, data);
    mine.from_zero += CountDiffering<Form::kRegistersFromZero, kWide>(a, b, seed, data);
  }
  AddCounts(mine, all);
}

// digests: [tiles].
__global__ void __launch_bounds__(kLawThreads)
    DigestsKernel(unsigned long long* digests, StepData data, uint64_t first) {
  __shared__ __align__(128) uint16_t a[kRows * kProducts];
  __shared__ __align__(128) uint16_t b[kColumns * kProducts];
  const Lane lane;
  const uint64_t seed = arith::StepTileSeed(data, first + blockIdx.x);
  FillA(a, seed, data);
  FillB(b, kColumns, seed, data);
  __syncthreads();
  uint32_t left[4], right[2];
  LoadA(a, lane.row, lane.quad, left);
  LoadB(b, lane.row % 8, lane.quad, right);
  float d[4];
  for (int i = 0; i < 4; ++i) {
    d[i] = arith::BitsFloat(AccumulatorC(seed, data, lane.OutputRow(i), lane.OutputColumn(i)));
  }
  device::MmaStep(d, left, right);
  unsigned long long sum = 0;
  for (int i = 0; i < 4; ++i) {
    const int index = lane.OutputRow(i) * kColumns + lane.OutputColumn(i);
    sum += arith::StepDigestTerm(static_cast<uint64_t>(index), arith::FloatBits(d[i]));
  }
  AddCount(digests + blockIdx.x, sum);
}

template <int kWide>
LawCounts RunColumns(StepData data, uint64_t first, int64_t tiles) {
  return RunCounted<LawCounts>([&](LawCounts* counts, cudaStream_t stream) {
    return cuda::Launch(ColumnsKernel<kWide>, LawBlocks(tiles), kLawThreads, stream, counts, data,
                        first, tiles);
  });
}

}  // namespace

LawCounts CompareSteps(StepData data, uint64_t first, int64_t tiles) {
  return RunCounted<LawCounts>([&](LawCounts* counts, cudaStream_t stream) {
    return cuda::Launch(StepsKernel, LawBlocks(tiles), kLawThreads, stream, counts, data, first,
                        tiles);
  });
}

LawCounts CompareColumns(int columns, StepData data, uint64_t first, int64_t tiles) {
  switch (columns) {
    case 16:
      return RunColumns<16>(data, first, tiles);
    case 32:
      return RunColumns<32>(data, first, tiles);
    case 64:
      return RunColumns<64>(data, first, tiles);
    case 128:
      return RunColumns<128>(data, first, tiles);
    case 192:
      return RunColumns<192>(data, first, tiles);
    default:
      return RunColumns<256>(data, first, tiles);
  }
}

std::vector<uint64_t> TileDigests(StepData data, uint64_t first, int64_t tiles) {
  const cuda::DeviceBuffer digests = NewBuffer(tiles * static_cast<int64_t>(sizeof(uint64_t)));
  Fill(digests.data(), 0, digests.bytes());
  const cuda::Stream stream = NewStream();
  const absl::Status launched =
      cuda::Launch(DigestsKernel, static_cast<unsigned>(tiles), kLawThreads, stream.get(),
                   reinterpret_cast<unsigned long long*>(digests.data()), data, first);
  Check(launched.ok() ? cudaSuccess : cudaErrorUnknown, "a launch of a law kernel");
  RLK_GPU_CHECK(cudaStreamSynchronize(stream.get()));
  return Download<uint64_t>(digests.data(), tiles);
}

}  // namespace rlk::gpu_test
