#define RLK_ISA_KERNELS kCpuKernelsV3
#include "kernels/linear/fp32_cpu.inc"
