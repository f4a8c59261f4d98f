#define RLK_ISA_KERNELS kSinusoidCpuKernelsBase
#include "kernels/ops/timestep_sinusoid_h3/cpu.inc"
