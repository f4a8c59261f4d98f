#define RLK_ISA_KERNELS kCpuKernelsBase
#include "kernels/linear/fp32_cpu.inc"
