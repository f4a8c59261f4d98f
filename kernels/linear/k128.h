// Contract bf16-k128-v1 of the deterministic linear: what every backend of it shares.
#pragma once

#include <cstdint>

namespace rlk::linear {

// Elements of the reduction that one chain of tensor-core steps takes.
inline constexpr int64_t kK128Chunk = 128;
// From here on a reduction of whole quarters is folded in four parts by default.
inline constexpr int64_t kK128LongReduction = 16384;

// The reduction of `length` elements can be folded in so many parts.
constexpr bool K128PartsFit(int64_t parts, int64_t length) {
  return parts == 1 || ((parts == 2 || parts == 4) && length % (parts * kK128Chunk) == 0);
}

// The parts that a call asked for; 0 leaves it to the contract.
constexpr int64_t K128Parts(int64_t asked, int64_t length) {
  if (asked != 0) return asked;
  return length >= kK128LongReduction && K128PartsFit(4, length) ? 4 : 1;
}

}  // namespace rlk::linear
