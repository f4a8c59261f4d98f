// Servers whose kernels of MiniMax-H3's chain are wrong in one stage, or run on a GPU that is none.
#pragma once

#include <atomic>
#include <string>

#include "kernels/registry/registry.h"

namespace rlk::test {

// What a kernel does wrong.
enum class Fault {
  kOneElement,   // of its first output
  kLastOutput,   // every element of its last output
  kUnwritten,    // its first output is left as it was found
  kNan,          // in one element
  kByRows,       // one ULP, where there are several timesteps
  kThirdLaunch,  // one ULP, at its third launch
  kNoFault,
};

struct PlantedFault {
  // No stage has a fault while it is empty.
  std::string method;
  Fault fault = Fault::kNoFault;
  std::atomic<int> launches{0};
};
// Of all servers of this process.
PlantedFault& Planted();

// The builtin operators; the host's kernels of the chain's stages have the planted fault.
void FillFaulty(Registry& registry);

// The host's kernels as a GPU's too, beside the reference, which only the host has.
void FillGpu(Registry& registry);

}  // namespace rlk::test
