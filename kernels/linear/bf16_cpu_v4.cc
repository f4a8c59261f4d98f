#define RLK_ISA_LOOPS kBf16LinearLoopsV4
#define RLK_LANES 16
#include "kernels/linear/bf16_cpu.inc"
