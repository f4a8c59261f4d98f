#define RLK_ISA_KERNELS kCpuKernelsV4
#include "kernels/ops/final_logit_softcap/cpu.inc"
