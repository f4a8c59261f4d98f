// The workspace of the CUDA backward: the row statistic, then what the weight gradient keeps. The
// variant declares its size and the launcher lays it out, both from here.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/ops/rms_norm/rms_norm.h"

namespace rlk::rms_norm {

// Rows up to this length are done in one pass, and a left fold of theirs stores its terms.
inline constexpr int64_t kNarrowLengthMax = 256;
inline constexpr int64_t kTermBytesMax = int64_t{64} << 20;

// Floats of a column of 128 stored terms: four more, so that neighbouring columns lie in different
// banks of shared memory.
inline constexpr int kStoredPitch = 132;

inline int64_t AlignWorkspace(int64_t bytes) { return (bytes + 255) / 256 * 256; }

inline int64_t StatisticBytes(const Problem& problem) { return AlignWorkspace(problem.rows * 4); }

// chunk128: the partial sums, [ceil(rows / 128), length].
inline int64_t PartialBytes(const Problem& problem) {
  if (problem.fold != Fold::kChunk128) return 0;
  return AlignWorkspace((problem.rows + kChunkRows - 1) / kChunkRows * problem.length * 4);
}

// A left fold of narrow rows goes over segments of rows, a multiple of 128.
inline int64_t SegmentRows(const Problem& problem) {
  const int64_t rows = kTermBytesMax / (4 * problem.length) / kChunkRows * kChunkRows;
  return std::min(rows, (problem.rows + kChunkRows - 1) / kChunkRows * kChunkRows);
}
inline bool StoresTerms(const Problem& problem) {
  return problem.fold == Fold::kLeft && problem.length <= kNarrowLengthMax;
}
// The terms of a segment, [segment, length] or, for bulk copies, [segment / 128, length,
// kStoredPitch], and the sum so far, [length].
inline int64_t TermBytes(const Problem& problem) {
  if (!StoresTerms(problem)) return 0;
  return AlignWorkspace(SegmentRows(problem) / kChunkRows * problem.length * kStoredPitch * 4);
}
inline int64_t SumBytes(const Problem& problem) {
  return StoresTerms(problem) ? AlignWorkspace(problem.length * 4) : 0;
}

}  // namespace rlk::rms_norm
