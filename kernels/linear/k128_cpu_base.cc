#define RLK_ISA_LOOPS kK128LoopsBase
#define RLK_LANES 4
#include "kernels/linear/k128_cpu.inc"
