// An operator whose cpu backend has the fault that an attribute names; golden has none.
//
// probe.forward   x [T,K], weight [K] -> y = x * weight, s = the sum of each row of y
// probe.backward  x, weight, grad_y, [dweight_acc_in] -> grad_x = grad_y * weight,
//                 grad_weight = the left fold of grad_y * x over rows, [dweight_acc]
// All FP32.
#pragma once

#include <memory>
#include <string>

#include "kernels/registry/registry.h"
#include "server/parity/host_tensor.h"

namespace rlk::test {

enum class Fault : int64_t {
  kNone,
  // s is summed in two halves where there are more than four rows.
  kBatchDependentSum,
  // One launch in a thousand flips the last bit of an element of y.
  kOneInAThousand,
  // Two elements of y are left as they were.
  kUnwrittenTile,
  kCreatesNan,
  // A row of y has a little of the row before it.
  kReadsNeighbour,
  // Every eighth row of y is one ULP off.
  kPositionDependent,
  // The carried accumulator is added last and not first.
  kCarryAddedLast,
  // The launch fails.
  kFails,
};

// Bound, with backends cpu and golden.
std::unique_ptr<Registry> MakeProbeRegistry();

// probe.forward with nearly normal values.
server::ValueCall ProbeCall(const Registry& registry, int64_t rows, Fault fault);

}  // namespace rlk::test
