// The known answers of a tensor core: whether one step follows the law t25x16.
#pragma once

#include "absl/status/status.h"

namespace rlk::linear {

// Runs the tiles of kernels/arith/step_vectors.h on a CUDA device, by `mma.sync` and, on compute
// capability 9.0, by `wgmma`. FAILED_PRECONDITION, naming the kind of data, where a digest is not
// that of the law. Defined in a build with CUDA only.
absl::Status CheckCudaStepLaw(int ordinal);

}  // namespace rlk::linear
