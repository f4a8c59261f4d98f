// Operators small enough to check by hand, declared as real ones are.
//
// toy.scale   y = factor * x; FP32 in, FP32 out, any strides; cpu and cuda variants, golden.
// toy.rich    every rule of a signature in one method; its kernel writes zeros.
#pragma once

#include <memory>

#include "kernels/registry/registry.h"

namespace rlk::test {

// Input, attribute and output indices of toy.rich.
struct Rich {
  enum Input { kA, kB, kList, kFixed, kLast };
  enum Attribute { kFactor, kCount, kFlag, kDType, kActivation, kRequired, kWide };
  enum Output { kY, kPairs, kScalar };
};

// The factor that toy.scale's own check refuses; the error's value is the contract that it saw.
inline constexpr float kToyRefusedFactor = 13;

// Bound, with backends cpu, golden and (when asked) cuda available.
std::unique_ptr<Registry> MakeToyRegistry(bool cuda = true);

}  // namespace rlk::test
