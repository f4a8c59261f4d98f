#include "kernels/arith/function_loops.h"

#include "kernels/core/cpu_features.h"

namespace rlk::arith {

extern const FunctionLoops kFunctionLoopsBase, kFunctionLoopsV3, kFunctionLoopsV4;

const FunctionLoops& GetFunctionLoops(Isa isa) {
  return PickByIsa(isa, kFunctionLoopsBase, kFunctionLoopsV3, kFunctionLoopsV4);
}

}  // namespace rlk::arith
