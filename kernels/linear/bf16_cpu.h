// Contract h3-det-linear-bf16-mma-v1 on the host, and what other contracts of BF16 share. One copy
// for each instruction set; the bits are equal.
#pragma once

#include <cstdint>

#include "kernels/linear/bf16_problem.h"

namespace rlk {
enum class Isa : uint8_t;  // kernels/core/cpu_features.h
}

namespace rlk::linear {

struct HostRun;  // kernels/linear/cpu.h

void ForwardBf16Cpu(const Bf16Linear& problem, const HostRun& run);
void BackwardInputBf16Cpu(const Bf16BackwardInput& problem, const HostRun& run);
void BackwardWeightBf16Cpu(const Bf16BackwardWeight& problem, const HostRun& run);
// silu(temb) in FP32 and one cast to BF16, `elements` of them.
void SiluBf16Cpu(const float* temb, int64_t elements, const HostRun& run, uint16_t* out);
// The same without the cast; and grad[i] = grad[i] * silu'(temb[i]).
void SiluF32Cpu(const float* temb, int64_t elements, const HostRun& run, float* out);
void SiluVjpCpu(const float* temb, int64_t elements, const HostRun& run, float* grad);
// g of outputs [begin, begin + count) of rows [first, first + rows), in FP32: [rows, count].
void GatherGradientCpu(const GradientSource& grad, int64_t first, int64_t rows, int64_t begin,
                       int64_t count, const HostRun& run, float* g);

// Outputs [begin, begin + count) of row `row` from their sums, on this thread, in the environment
// that contracts assume.
void FinishBf16Row(const Bf16Linear& problem, int64_t row, int64_t begin, int64_t count,
                   const HostRun& run, const float* total);

// Indices that two tensor-core steps take together.
inline constexpr int64_t kBf16Block = 32;
// Rows that share one pass over the weights.
inline constexpr int64_t kBf16RowsMax = 64;

// Rows of x as the loops read them, K padded with zeros to a multiple of kBf16Block.
struct Bf16Rows {
  int64_t rows = 0;                // at most kBf16RowsMax
  int64_t padded = 0;              // K rounded up
  const uint16_t* bits = nullptr;  // [rows, padded]
  const float* values = nullptr;   // [rows, padded]
  const float* powers = nullptr;   // [rows, padded]: |value| without its fraction
  const uint8_t* fast = nullptr;   // [rows, padded / kBf16Block]: every element is 0 or in range
};

struct Bf16Forward {
  Bf16Rows x;
  int64_t length = 0;                // K, a multiple of 8
  const uint16_t* weight = nullptr;  // [columns, length]
  int64_t columns = 0;
  float* total = nullptr;  // [rows, total_stride]: columns of it are written
  int64_t total_stride = 0;
};

struct Bf16LinearLoops {
  // Fills values, powers and fast of `rows` rows from their padded bits.
  void (*prepare)(int64_t rows, int64_t padded, const uint16_t* bits, float* values, float* powers,
                  uint8_t* fast);
  void (*forward)(const Bf16Forward& call);
  // v = total + bias; then pre = v and y = activation(v) in one cast, each where it is not null.
  void (*finish)(const float* total, const uint16_t* bias, int64_t count, Activation activation,
                 float* pre, bool f32, void* y);
  // g[i] = grad[i] up-converted.
  void (*convert)(const void* grad, bool f32, int64_t count, float* g);
  // out[i] = grad[i] * silu'(z[i]), as it is stored.
  void (*silu_vjp)(const float* grad, const float* z, int64_t count, float* out);
  void (*silu)(const float* z, int64_t count, uint16_t* out);
  void (*silu_f32)(const float* z, int64_t count, float* out);
};

// The loops for one of AvailableIsas().
const Bf16LinearLoops& GetBf16LinearLoops(Isa isa);

}  // namespace rlk::linear
