// The layouts that a row's bits must not depend on.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "server/parity/rows.h"

namespace rlk::server {

enum class InvarianceAxis : uint8_t {
  kRepeat,
  kSlice,
  kPad,
  kPermute,
  kChunk,
  kNeighbours,
  kConcurrency,
};
inline constexpr int kInvarianceAxisCount = 7;

constexpr std::string_view InvarianceAxisName(InvarianceAxis axis) {
  constexpr std::array<std::string_view, kInvarianceAxisCount> kNames = {
      "repeat", "slice", "pad", "permute", "chunk", "neighbours", "concurrency"};
  return kNames[static_cast<size_t>(axis)];
}

struct NamedLayout {
  // "rows [3, 7) alone".
  std::string name;
  // Made when its turn comes, and the same each time: a layout has 16 bytes a row, and an axis up
  // to 14 of them.
  std::function<Layout()> make;
};

// The layouts of kSlice, kPad, kPermute and kNeighbours for `rows` rows: always the same for the
// same seed. Empty where the axis needs more rows than there are.
std::vector<NamedLayout> LayoutsOf(InvarianceAxis axis, int64_t rows, uint64_t seed);

// Sizes for kChunk: each below `rows`, and no more than kChunksMax chunks.
inline constexpr int64_t kChunksMax = 64;
std::vector<int64_t> ChunkSizes(int64_t rows);

// Rows [begin, end).
Layout RowRange(int64_t begin, int64_t end);

}  // namespace rlk::server
