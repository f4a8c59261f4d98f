#define RLK_ISA_KERNELS kSinusoidCpuKernelsV3
#include "kernels/ops/timestep_sinusoid_h3/cpu.inc"
