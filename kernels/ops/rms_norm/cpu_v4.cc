#define RLK_ISA_KERNELS kNormCpuKernelsV4
#include "kernels/ops/rms_norm/cpu.inc"
