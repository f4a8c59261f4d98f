#define RLK_ISA_LOOPS kK128LoopsV3
#define RLK_LANES 8
#include "kernels/linear/k128_cpu.inc"
