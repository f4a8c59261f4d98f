// Offers the FP64 reference of a method as a backend of its own.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/registry/registry.h"

namespace rlk {

// Runs `golden`, which writes F64 outputs, and rounds each element once to the dtype of the output
// that the call asked for. For F64 outputs it is `golden` itself.
absl::Status LaunchGoldenRounded(LaunchFn golden, const KernelArgs& args);

// One rounding to nearest even from FP64, overflow to infinity, NaN canonical.
float RoundF64ToF32(double x);
uint16_t RoundF64ToF16(double x);
uint16_t RoundF64ToBf16(double x);

}  // namespace rlk
