#define RLK_ISA_KERNELS kCpuKernelsV4
#include "kernels/linear/fp32_cpu.inc"
