// The contiguous loops of the cpu backend, one table for each instruction set; the bits are equal.
// No inline function of external linkage may be defined or included here.
#pragma once

#include <cstdint>

namespace rlk {

// Index of a float dtype in the tables below.
enum SoftcapDType { kSoftcapF32 = 0, kSoftcapF16 = 1, kSoftcapBf16 = 2 };

struct SoftcapCpuKernels {
  // [dtype of x][output: 0 F32, 1 dtype of x]. x, y: [count].
  void (*forward[3][2])(const void* x, void* y, int64_t count, float softcap);
  // [dtype of x][grad_y: 0 F32, 1 dtype of x]. x, grad_y, grad_x: [count].
  void (*backward[3][2])(const void* x, const void* grad_y, void* grad_x, int64_t count,
                         float softcap);
};

extern const SoftcapCpuKernels kCpuKernelsBase, kCpuKernelsV3, kCpuKernelsV4;

}  // namespace rlk
