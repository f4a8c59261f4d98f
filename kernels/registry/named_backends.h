// Backends that a call gets by name alone: nothing is ever selected from them.
#pragma once

#include "kernels/registry/contract.h"

namespace rlk {

// Golden and witnesses. Each has contracts of its own.
constexpr bool OnlyByName(Backend backend) {
  return backend == Backend::kGolden || backend == Backend::kCublasLt;
}

}  // namespace rlk
