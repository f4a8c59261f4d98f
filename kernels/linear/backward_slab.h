// grad_x of few tiles, by slabs of up to 128 rows; internal to this folder.
#pragma once

#include "kernels/linear/backward_tile.h"

namespace rlk::linear {

// workspace: SlabBytes, aligned to 256. One kernel a slab, which has the whole device: its blocks
// wait for each other.
int64_t SlabBytes(const Shape& shape);
absl::Status LaunchSlabs(const TiledBackwardInput& problem, void* workspace, StreamRef stream);

}  // namespace rlk::linear
