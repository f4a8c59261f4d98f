#define RLK_ISA_LOOPS kFunctionLoopsV4
#include "kernels/arith/function_loops.inc"
