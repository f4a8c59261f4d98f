#define RLK_ISA_KERNELS kSinusoidCpuKernelsV4
#include "kernels/ops/timestep_sinusoid_h3/cpu.inc"
