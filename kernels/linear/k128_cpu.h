// Contract bf16-k128-v1 on the host, and its loops: one copy for each instruction set; the bits are
// equal.
//
// All three products are one: sums [rows, columns] over chunks of the reduction. An element of a
// row is multiplied with a vector of columns.
#pragma once

#include <cstdint>

#include "kernels/linear/bf16_problem.h"
#include "kernels/linear/k128.h"

namespace rlk {
enum class Isa : uint8_t;  // kernels/core/cpu_features.h
}

namespace rlk::linear {

struct HostRun;  // kernels/linear/cpu.h

// `parts`: of the reduction, 1, 2 or 4 (K128PartsFit).
void ForwardK128Cpu(const Bf16Linear& problem, int64_t parts, const HostRun& run);
void BackwardInputK128Cpu(const Bf16BackwardInput& problem, int64_t parts, const HostRun& run);
void BackwardWeightK128Cpu(const Bf16BackwardWeight& problem, const HostRun& run);

// Bounds of exponent fields, by which the fast lanes know operands that they can take.
struct K128Range {
  int32_t low, high;
};

// A row, elements `stride` apart: BF16 in `bf16`, or else FP32.
struct K128Source {
  const uint16_t* bf16 = nullptr;
  const float* f32 = nullptr;
  int64_t stride = 1;
};

// Rows as the loops read them. Each chunk holds `terms` vectors of kK128Chunk BF16 elements, zero
// beyond the end, whose products are added in this order: a BF16 row itself (1), or the three parts
// of an FP32 row, smallest first (3).
struct K128Rows {
  int64_t rows = 0, chunks = 0, terms = 1;
  uint16_t* bits = nullptr;     // [rows, chunks, terms, kK128Chunk]
  float* values = nullptr;      // the same, scaled by 2^24
  float* powers = nullptr;      // |value| without its fraction
  K128Range* ranges = nullptr;  // [rows, chunks]
};

struct K128Product {
  K128Rows rows;
  int64_t length = 0;  // of the reduction
  // Element k of column n stands at n * stride + k where `along`, or else at k * stride + n.
  const uint16_t* matrix = nullptr;
  int64_t stride = 0;
  bool along = false;
  int64_t columns = 0;
  float* sum = nullptr;  // [rows, sum_stride]: columns of it are continued
  int64_t sum_stride = 0;
};

struct K128Loops {
  // Fills row `row` from `count` elements of the source.
  void (*prepare)(const K128Source& source, int64_t count, int64_t row, const K128Rows& rows);
  // sum = add(sum, D) for each chunk ascending, D its chain of steps from zero.
  void (*accumulate)(const K128Product& product);
};

// The loops for one of AvailableIsas().
const K128Loops& GetK128Loops(Isa isa);

}  // namespace rlk::linear
