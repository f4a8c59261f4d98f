// Gathers what triage looks at beyond the counts: samples of both sides, and whether rows are the
// same in another order. Reads a bounded part of the tensors.
#pragma once

#include "absl/status/statusor.h"
#include "server/parity/interrupt.h"
#include "server/parity/parity_tensor.h"
#include "server/parity/triage.h"

namespace rlk::server {

// Of two tensors of one dtype and shape. `rows` may be null.
absl::StatusOr<TriageEvidence> GatherEvidence(const ParityTensor& left, const ParityTensor& right,
                                              const compare::Stats& stats,
                                              const compare::RowStats* rows,
                                              const Interrupt& interrupt);

}  // namespace rlk::server
