// Where a call's tensors lie in the memory of a CUDA lane.
#pragma once

#include <cstdint>

#include "kernels/digest/digest_cuda.h"
#include "server/engine/host_memory.h"

namespace rlk::server {

inline constexpr int64_t kLaneAlignment = 256;

// Device memory of a lane: inputs, outputs, workspace, digest nodes, digest result, in this order.
struct LaneLayout {
  int64_t outputs = 0, workspace = 0, nodes = 0, end = 0;

  LaneLayout() = default;
  LaneLayout(int64_t input_bytes, int64_t output_bytes, int64_t workspace_bytes, int64_t largest) {
    outputs = AlignUp(input_bytes, kLaneAlignment);
    workspace = outputs + AlignUp(output_bytes, kLaneAlignment);
    nodes = workspace + AlignUp(workspace_bytes, kLaneAlignment);
    end = nodes + AlignUp(DigestScratchBytes(largest), kLaneAlignment);
  }
};

}  // namespace rlk::server
