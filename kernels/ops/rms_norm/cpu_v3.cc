#define RLK_ISA_KERNELS kNormCpuKernelsV3
#include "kernels/ops/rms_norm/cpu.inc"
