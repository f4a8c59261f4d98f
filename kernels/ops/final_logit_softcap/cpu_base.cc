#define RLK_ISA_KERNELS kCpuKernelsBase
#include "kernels/ops/final_logit_softcap/cpu.inc"
