#define RLK_ISA_LOOPS kFunctionLoopsBase
#include "kernels/arith/function_loops.inc"
