// How checks compare the outputs of two sides.
#pragma once

#include "absl/status/statusor.h"
#include "kernels/registry/registry.h"
#include "server/engine/tolerance.h"
#include "server/parity/comparison.h"
#include "server/parity/host_tensor.h"
#include "server/parity/interrupt.h"

namespace rlk::server {

// Every bit must be equal.
absl::StatusOr<Comparison> CompareBitsOf(const HostTensor& left, const HostTensor& right,
                                         Judgment judgment, const Interrupt& interrupt);

// ACCURACY: by the row of the tolerance contract for an output of the method; bitwise for integers.
absl::StatusOr<Comparison> CompareWithGolden(const Method& method, const HostTensor& candidate,
                                             const HostTensor& golden,
                                             const ToleranceContract& tolerance,
                                             const Interrupt& interrupt);

// Some element has the bits of memory that nobody wrote.
bool HasCanaries(const Comparison& comparison);

}  // namespace rlk::server
