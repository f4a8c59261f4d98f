// The workspace of the CUDA backward: the row statistic, then the partial sums of chunk128. The
// variant declares its size and the launcher lays it out, both from here.
#pragma once

#include <cstdint>

#include "kernels/ops/rms_norm/rms_norm.h"

namespace rlk::rms_norm {

inline int64_t AlignWorkspace(int64_t bytes) { return (bytes + 255) / 256 * 256; }

inline int64_t StatisticBytes(const Problem& problem) { return AlignWorkspace(problem.rows * 4); }

inline int64_t PartialBytes(const Problem& problem) {
  if (problem.fold != Fold::kChunk128) return 0;
  return AlignWorkspace((problem.rows + kChunkRows - 1) / kChunkRows * problem.length * 4);
}

}  // namespace rlk::rms_norm
