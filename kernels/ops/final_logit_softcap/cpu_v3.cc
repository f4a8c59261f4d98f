#define RLK_ISA_KERNELS kCpuKernelsV3
#include "kernels/ops/final_logit_softcap/cpu.inc"
