#define RLK_ISA_LOOPS kK128LoopsV4
#define RLK_LANES 16
#include "kernels/linear/k128_cpu.inc"
