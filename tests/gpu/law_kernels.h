// Tensor-core steps on the device beside their law as integer code.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/arith/step_vectors.h"

namespace rlk::gpu_test {

// Outputs of one run whose bits are not the law's, by how they were computed.
struct LawCounts {
  unsigned long long outputs = 0;
  // One step from the accumulator: `mma.sync`; the same with the roles of a and b exchanged;
  // `wgmma` with operand A in shared memory and in registers.
  unsigned long long mma = 0, swapped = 0, shared = 0, registers = 0;
  // `wgmma` that must ignore an accumulator of NaN, both kinds of A.
  unsigned long long from_zero = 0;
  // Of the law's outputs: zeros, subnormals, and infinities and NaN.
  unsigned long long zeros = 0, subnormals = 0, specials = 0;
};

// `tiles` tiles of 64 x 8 outputs of one kind of data from tile number `first`.
LawCounts CompareSteps(arith::StepData data, uint64_t first, int64_t tiles);

// Tiles of 64 x `columns` outputs: 16, 32, 64, 128, 192 or 256. `wgmma` only.
LawCounts CompareColumns(int columns, arith::StepData data, uint64_t first, int64_t tiles);

// The digest of each tile, of what `mma.sync` gave.
std::vector<uint64_t> TileDigests(arith::StepData data, uint64_t first, int64_t tiles);

// Outputs that differ from the law at any of the comparisons along a long reduction, one every
// eight steps.
struct ChainCounts {
  unsigned long long comparisons = 0;
  // All steps chained in the accumulator: `mma.sync`, `wgmma` with A shared and from registers.
  unsigned long long mma = 0, shared = 0, registers = 0;
  // Eight steps chained from zero, then added in FP32 (`wgmma`, A from registers).
  unsigned long long promoted = 0;
  // Each step from zero, then added in FP32: `mma.sync` and `wgmma`.
  unsigned long long single_mma = 0, single_wgmma = 0;
};

struct ChainShape {
  int64_t chunks = 1;       // of eight steps
  int tail_steps = 8;       // of the last chunk; the others have zero operands
  bool zero_parts = false;  // sixteen steps with a = 0 before each chunk, as a split gradient has
};
ChainCounts CompareChains(arith::StepData data, const ChainShape& shape, uint64_t first,
                          int64_t tiles);

}  // namespace rlk::gpu_test
