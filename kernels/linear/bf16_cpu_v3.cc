#define RLK_ISA_LOOPS kBf16LinearLoopsV3
#define RLK_LANES 8
#include "kernels/linear/bf16_cpu.inc"
