#define RLK_ISA_LOOPS kFunctionLoopsV3
#include "kernels/arith/function_loops.inc"
