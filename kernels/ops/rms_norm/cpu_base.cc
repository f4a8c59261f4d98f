#define RLK_ISA_KERNELS kNormCpuKernelsBase
#include "kernels/ops/rms_norm/cpu.inc"
