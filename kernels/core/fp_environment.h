// The floating-point environment that every contract assumes: round to nearest even, subnormals
// kept as inputs and outputs. Another library in the process may have changed it.
#pragma once

#include <cstdint>

namespace rlk {

// Sets the environment of the calling thread and restores the former one. Every host kernel has
// one at its entry, and one in each body that a pool thread runs. Construct it in a function that
// calls the arithmetic in another translation unit, so that no operation moves across it.
class FpEnvironment {
 public:
  FpEnvironment();
  ~FpEnvironment();
  FpEnvironment(const FpEnvironment&) = delete;
  FpEnvironment& operator=(const FpEnvironment&) = delete;

 private:
  uint64_t saved_;
};

}  // namespace rlk
