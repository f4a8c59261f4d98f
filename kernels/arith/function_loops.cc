#include "kernels/arith/function_loops.h"

#include "kernels/core/cpu_features.h"

namespace rlk::arith {

extern const FunctionLoops kFunctionLoopsBase, kFunctionLoopsV3, kFunctionLoopsV4;

const FunctionLoops& GetFunctionLoops(Isa isa) {
  switch (isa) {
    case Isa::kV4:
      return kFunctionLoopsV4;
    case Isa::kV3:
      return kFunctionLoopsV3;
    case Isa::kBase:
      break;
  }
  return kFunctionLoopsBase;
}

}  // namespace rlk::arith
