#include "server/parity/invariance_axis.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/counter_random.h"

namespace rlk::server {
namespace {

constexpr int kRandomSlices = 6;
constexpr int kRandomPermutations = 3;
constexpr int kRandomNeighbours = 2;

// Numbers of one axis, one behind the other, from the at-th on.
class Stream {
 public:
  explicit Stream(uint64_t seed, int64_t at = 0) : seed_(seed), at_(static_cast<uint64_t>(at)) {}
  // In [0, bound).
  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(RandomBits(seed_, at_++) % static_cast<uint64_t>(bound));
  }

 private:
  const uint64_t seed_;
  uint64_t at_;
};

std::string RangeText(int64_t begin, int64_t end) {
  return absl::StrCat("[", begin, ", ", end, ")");
}

std::vector<NamedLayout> Slices(int64_t rows, uint64_t seed) {
  Stream random(seed);
  std::set<std::pair<int64_t, int64_t>> ranges;
  for (const int64_t row : {int64_t{0}, int64_t{1}, rows / 2, rows - 1}) {
    ranges.emplace(row, row + 1);
  }
  ranges.emplace(0, (rows + 1) / 2);
  ranges.emplace(rows / 2, rows);
  ranges.emplace(1, rows);
  ranges.emplace(0, rows - 1);
  for (int i = 0; i < kRandomSlices; ++i) {
    const int64_t begin = random.Below(rows);
    ranges.emplace(begin, begin + 1 + random.Below(rows - begin));
  }
  ranges.erase({0, rows});
  std::vector<NamedLayout> layouts;
  for (const auto& range : ranges) {
    layouts.push_back({absl::StrCat("rows ", RangeText(range.first, range.second), " alone"),
                       [range] { return RowRange(range.first, range.second); }});
  }
  return layouts;
}

Layout Padded(int64_t rows, int64_t before, int64_t behind) {
  Layout layout;
  int64_t filler = 0;
  for (int64_t i = 0; i < before; ++i) layout.push_back({filler++, true});
  for (int64_t i = 0; i < rows; ++i) layout.push_back({i, false});
  for (int64_t i = 0; i < behind; ++i) layout.push_back({filler++, true});
  return layout;
}

std::vector<NamedLayout> Pads(int64_t rows) {
  // No more than the call itself and a little has, so that padding does not multiply its memory.
  const int64_t most = std::clamp<int64_t>(rows, 8, 128);
  std::vector<NamedLayout> layouts;
  constexpr std::pair<int64_t, int64_t> kPads[] = {{1, 0}, {0, 1},   {3, 5},
                                                   {7, 0}, {0, 127}, {128, 1}};
  for (const auto& [front, back] : kPads) {
    const int64_t before = std::min(front, most), behind = std::min(back, most);
    layouts.push_back({absl::StrCat(before, " filler rows before, ", behind, " behind"),
                       [=] { return Padded(rows, before, behind); }});
  }
  return layouts;
}

Layout Shuffled(int64_t rows, Stream random) {
  Layout layout = RowRange(0, rows);
  for (int64_t at = rows - 1; at > 0; --at) {
    std::swap(layout[static_cast<size_t>(at)], layout[static_cast<size_t>(random.Below(at + 1))]);
  }
  return layout;
}

std::vector<NamedLayout> Permutations(int64_t rows, uint64_t seed) {
  std::vector<NamedLayout> layouts;
  layouts.push_back({"rows in reverse order", [rows] {
                       Layout reversed = RowRange(0, rows);
                       std::reverse(reversed.begin(), reversed.end());
                       return reversed;
                     }});
  layouts.push_back({"the first row behind the last", [rows] {
                       Layout rotated = RowRange(0, rows);
                       std::rotate(rotated.begin(), rotated.begin() + 1, rotated.end());
                       return rotated;
                     }});
  for (int i = 0; i < kRandomPermutations; ++i) {
    const Stream random(seed, i * (rows - 1));
    layouts.push_back({absl::StrCat("random permutation ", i),
                       [rows, random] { return Shuffled(rows, random); }});
  }
  return layouts;
}

// `kept` stay in their place among fillers.
template <typename Kept>
NamedLayout Among(std::string name, int64_t rows, const Kept& kept) {
  return {std::move(name), [rows, kept] {
            Kept keeps = kept;
            Layout layout;
            layout.reserve(static_cast<size_t>(rows));
            for (int64_t i = 0; i < rows; ++i) layout.push_back({i, !keeps(i)});
            return layout;
          }};
}

std::vector<NamedLayout> Neighbours(int64_t rows, uint64_t seed) {
  std::vector<NamedLayout> layouts;
  std::set<int64_t> alone = {0, rows / 2, rows - 1};
  for (const int64_t row : alone) {
    layouts.push_back(Among(absl::StrCat("all rows but ", row, " changed"), rows,
                            [row](int64_t i) { return i == row; }));
  }
  layouts.push_back(Among("odd rows changed", rows, [](int64_t i) { return i % 2 == 0; }));
  for (int k = 0; k < kRandomNeighbours; ++k) {
    Stream random(seed, k * rows);
    layouts.push_back(Among(absl::StrCat("random rows changed, ", k), rows,
                            [random](int64_t) mutable { return random.Below(2) == 0; }));
  }
  return layouts;
}

}  // namespace

Layout RowRange(int64_t begin, int64_t end) {
  Layout layout;
  layout.reserve(static_cast<size_t>(end - begin));
  for (int64_t i = begin; i < end; ++i) layout.push_back({i, false});
  return layout;
}

std::vector<NamedLayout> LayoutsOf(InvarianceAxis axis, int64_t rows, uint64_t seed) {
  const uint64_t own = RandomBits(seed, static_cast<uint64_t>(axis));
  if (rows < 1) return {};
  if (axis == InvarianceAxis::kPad) return Pads(rows);
  if (rows < 2) return {};
  switch (axis) {
    case InvarianceAxis::kSlice:
      return Slices(rows, own);
    case InvarianceAxis::kPermute:
      return Permutations(rows, own);
    case InvarianceAxis::kNeighbours:
      return Neighbours(rows, own);
    default:
      return {};
  }
}

std::vector<int64_t> ChunkSizes(int64_t rows) {
  std::set<int64_t> sizes;
  for (const int64_t size :
       {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{16}, int64_t{64}, int64_t{128}, int64_t{256},
        (rows + 1) / 2, (rows + 2) / 3, (rows + kChunksMax - 1) / kChunksMax}) {
    if (size >= 1 && size < rows && (rows + size - 1) / size <= kChunksMax) sizes.insert(size);
  }
  return {sizes.begin(), sizes.end()};
}

}  // namespace rlk::server
