#define RLK_ISA_LOOPS kBf16LinearLoopsBase
#define RLK_LANES 4
#include "kernels/linear/bf16_cpu.inc"
