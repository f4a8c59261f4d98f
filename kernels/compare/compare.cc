#include "kernels/compare/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/compare/element.h"
#include "kernels/core/fp_environment.h"

namespace rlk::compare {
namespace {

template <typename T>
T LoadAt(const std::byte* data, int64_t index) {
  T value;
  std::memcpy(&value, data + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// What one segment adds.
struct Part {
  std::array<int64_t, kCounterCount> counts = {};
  Sums sums;
  Extremes extremes;
  int64_t first = -1;

  void Count(Counter counter) { ++counts[counter]; }
  void Distance(uint64_t distance) { extremes.ulp = std::max(extremes.ulp, distance); }
};

template <typename T>
T Tree(T (&lanes)[kLanes]) {
  for (int step = 1; step < kLanes; step *= 2) {
    for (int l = 0; l < kLanes; l += 2 * step) lanes[l] = lanes[l] + lanes[l + step];
  }
  return lanes[0];
}

Sums Tree(Sums (&lanes)[kLanes]) {
  for (int step = 1; step < kLanes; step *= 2) {
    for (int l = 0; l < kLanes; l += 2 * step) AddSums(lanes[l + step], lanes[l]);
  }
  return lanes[0];
}

template <typename F>
class Blocks {
 public:
  using Bits = typename F::Bits;
  using Layout = ElementLayout<F>;

  Blocks(const Spec& spec, const std::byte* left, const std::byte* right, const double* wide)
      : spec_(spec), left_(left), right_(right), wide_(wide) {}

  // Elements [begin, end) of one block.
  void Add(int64_t begin, int64_t end, Part& part) const {
    const auto bytes = static_cast<size_t>(end - begin) * sizeof(Bits);
    const int64_t offset = begin * static_cast<int64_t>(sizeof(Bits));
    const bool equal = std::memcmp(left_ + offset, right_ + offset, bytes) == 0;
    if (equal && wide_ == nullptr) {
      AddEqual(begin, end, part);
    } else {
      AddDifferent(begin, end, part);
    }
  }

 private:
  void AddEqual(int64_t begin, int64_t end, Part& part) const {
    double sums[kLanes] = {}, squares[kLanes] = {};
    double largest = 0;
    for (int64_t i = begin; i < end; ++i) {
      const Bits bits = LoadAt<Bits>(right_, i);
      CountEqual<F>(bits, part);
      if (!Finite<F>(bits)) continue;
      const double value = F::Value(bits);
      const int64_t lane = (i - begin) / Layout::kVector % kLanes;
      sums[lane] = sums[lane] + value;
      squares[lane] = squares[lane] + value * value;
      largest = std::max(largest, AbsoluteOf(value));
    }
    part.extremes.left = std::max(part.extremes.left, largest);
    part.extremes.right = std::max(part.extremes.right, largest);
    AddSums(EqualSums(Tree(sums), Tree(squares)), part.sums);
  }

  void AddDifferent(int64_t begin, int64_t end, Part& part) const {
    Sums lanes[kLanes];
    for (int64_t i = begin; i < end; ++i) {
      const Bits left = LoadAt<Bits>(left_, i), right = LoadAt<Bits>(right_, i);
      if (left == right) {
        CountEqual<F>(left, part);
      } else {
        if (part.first < 0) part.first = i;
        CountMismatch<F>(left, right, part);
      }
      if (!Finite<F>(left) || !Finite<F>(right)) continue;
      const double value = F::Value(left);
      const double reference = wide_ != nullptr ? wide_[i] : F::Value(right);
      part.extremes.left = std::max(part.extremes.left, AbsoluteOf(value));
      part.extremes.right = std::max(part.extremes.right, AbsoluteOf(reference));
      AddValues(value, reference, lanes[(i - begin) / Layout::kVector % kLanes]);
      if (AddError(value, reference, i, spec_.atol, spec_.rtol, spec_.relative_floor,
                   part.extremes)) {
        part.Count(kOutside);
      }
    }
    AddSums(Tree(lanes), part.sums);
  }

  const Spec& spec_;
  const std::byte* const left_;
  const std::byte* const right_;
  const double* const wide_;
};

void Merge(const Part& part, Stats& total) {
  for (int c = 0; c < kCounterCount; ++c) total.counts[c] += part.counts[c];
  AddSums(part.sums, total.sums);
  MergeExtremes(part.extremes, total.extremes);
  if (total.first < 0) total.first = part.first;
}

template <typename F>
void AccumulateAs(const Spec& spec, const std::byte* left, const std::byte* right,
                  const double* wide, int64_t first, int64_t count, ThreadPool* pool,
                  Stats& total) {
  const Blocks<F> blocks(spec, left, right, wide);
  const int64_t segments = (count + kSegmentElements - 1) / kSegmentElements;
  std::vector<Part> parts(static_cast<size_t>(segments));
  const auto add = [&](int64_t begin, int64_t end) {
    const FpEnvironment environment;
    for (int64_t segment = begin; segment < end; ++segment) {
      const int64_t start = first + segment * kSegmentElements;
      const int64_t stop = std::min(start + kSegmentElements, first + count);
      for (int64_t block = start; block < stop; block += kBlockElements) {
        blocks.Add(block, std::min(block + kBlockElements, stop),
                   parts[static_cast<size_t>(segment)]);
      }
    }
  };
  if (pool != nullptr) {
    pool->ParallelFor(segments, 1, add);
  } else {
    add(0, segments);
  }
  for (const Part& part : parts) Merge(part, total);
  total.compared += count;
}

// What one row has.
struct Row {
  int64_t mismatched = 0;
  int64_t first = -1, last = -1;
  uint64_t any = 0, all = ~uint64_t{0};
};

template <typename Bits>
Row CompareRow(const std::byte* left, const std::byte* right, int64_t columns) {
  Row row;
  if (std::memcmp(left, right, static_cast<size_t>(columns) * sizeof(Bits)) == 0) return row;
  for (int64_t c = 0; c < columns; ++c) {
    if (LoadAt<Bits>(left, c) == LoadAt<Bits>(right, c)) continue;
    ++row.mismatched;
    if (row.first < 0) row.first = c;
    row.last = c;
    row.any |= static_cast<uint64_t>(c);
    row.all &= static_cast<uint64_t>(c);
  }
  return row;
}

void AddRow(int64_t index, const Row& row, int rows_max, RowStats& stats) {
  AddRow({index, row.mismatched}, rows_max, stats);
  if (stats.first_column < 0 || row.first < stats.first_column) stats.first_column = row.first;
  stats.last_column = std::max(stats.last_column, row.last);
  stats.column_or |= row.any;
  stats.column_and &= row.all;
}

int SignificandBits(DType dtype) {
  return dtype == DType::kF32 ? 24 : (dtype == DType::kF16 ? 11 : 8);
}

// Nearest value of the dtype, ties to even; infinity where that is beyond its range.
double RoundValue(DType dtype, double value) {
  if (!std::isfinite(value) || value == 0) return value;
  const int exponent_min = dtype == DType::kF16 ? -14 : -126;
  const int exponent = std::max(std::ilogb(value), exponent_min);
  const int quantum = exponent - (SignificandBits(dtype) - 1);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -quantum)), quantum);
  const double largest = dtype == DType::kF16    ? 65504
                         : dtype == DType::kBF16 ? 0x1.fep127
                                                 : 0x1.fffffep127;
  if (std::fabs(rounded) > largest) return std::copysign(INFINITY, value);
  return rounded;
}

}  // namespace

void Accumulate(const Spec& spec, const void* left, const void* right, const double* wide,
                int64_t first, int64_t count, ThreadPool* pool, Stats& total) {
  WithFormat(spec.dtype, [&](auto format) {
    AccumulateAs<decltype(format)>(spec, static_cast<const std::byte*>(left),
                                   static_cast<const std::byte*>(right), wide, first, count, pool,
                                   total);
  });
}

void AddRow(const RowMismatch& row, int rows_max, RowStats& stats) {
  ++stats.mismatched;
  if (stats.first < 0) stats.first = row.row;
  stats.last = row.row;
  stats.row_or |= static_cast<uint64_t>(row.row);
  stats.row_and &= static_cast<uint64_t>(row.row);
  if (static_cast<int64_t>(stats.listed.size()) < kListedRows) stats.listed.push_back(row.row);
  auto& worst = stats.worst;
  const auto place =
      std::upper_bound(worst.begin(), worst.end(), row,
                       [](const auto& a, const auto& b) { return a.mismatched > b.mismatched; });
  if (place - worst.begin() >= rows_max) return;
  worst.insert(place, row);
  if (static_cast<int>(worst.size()) > rows_max) worst.pop_back();
}

RowStats CompareRows(DType dtype, const void* left, const void* right, int64_t rows,
                     int64_t columns, int rows_max, ThreadPool* pool) {
  constexpr int64_t kBatch = int64_t{1} << 16;
  const int64_t bytes = columns * DTypeSize(dtype);
  const int64_t grain = std::max<int64_t>((int64_t{1} << 18) / std::max<int64_t>(bytes, 1), 1);
  std::vector<Row> batch(static_cast<size_t>(std::min(rows, kBatch)));
  RowStats stats;
  for (int64_t start = 0; start < rows; start += kBatch) {
    const auto compare = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto* a = static_cast<const std::byte*>(left) + (start + i) * bytes;
        const auto* b = static_cast<const std::byte*>(right) + (start + i) * bytes;
        WithFormat(dtype, [&](auto format) {
          batch[static_cast<size_t>(i)] =
              CompareRow<typename decltype(format)::Bits>(a, b, columns);
        });
      }
    };
    const int64_t count = std::min(kBatch, rows - start);
    if (pool != nullptr) {
      pool->ParallelFor(count, grain, compare);
    } else {
      compare(0, count);
    }
    for (int64_t i = 0; i < count; ++i) {
      const Row& row = batch[static_cast<size_t>(i)];
      if (row.mismatched > 0) AddRow(start + i, row, rows_max, stats);
    }
  }
  return stats;
}

uint64_t BucketFirst(int bucket) {
  if (bucket <= 2) return static_cast<uint64_t>(bucket);
  return (uint64_t{1} << (bucket - 2)) + 1;
}

uint64_t BucketLast(int bucket) {
  if (bucket <= 2) return static_cast<uint64_t>(bucket);
  return bucket == kUlpBuckets - 1 ? static_cast<uint64_t>(INT64_MAX) : uint64_t{1} << (bucket - 1);
}

void RoundTo(DType dtype, const double* values, int64_t count, void* out) {
  const FpEnvironment environment;
  for (int64_t i = 0; i < count; ++i) {
    const auto narrow = static_cast<float>(RoundValue(dtype, values[i]));
    switch (dtype) {
      case DType::kF32:
        static_cast<uint32_t*>(out)[i] =
            std::isnan(narrow) ? 0x7fffffffu : arith::FloatBits(narrow);
        break;
      case DType::kF16:
        static_cast<uint16_t*>(out)[i] = arith::FloatToF16(narrow);
        break;
      case DType::kBF16:
        static_cast<uint16_t*>(out)[i] = arith::FloatToBf16(narrow);
        break;
      default:
        static_cast<double*>(out)[i] = values[i];
    }
  }
}

void Widen(DType dtype, const void* from, int64_t count, double* out) {
  WithFormat(dtype, [&](auto format) {
    using F = decltype(format);
    for (int64_t i = 0; i < count; ++i) {
      out[i] = F::Value(LoadAt<typename F::Bits>(static_cast<const std::byte*>(from), i));
    }
  });
}

void CanonicalizeNan(DType dtype, void* data, int64_t count) {
  WithFormat(dtype, [&](auto format) {
    using F = decltype(format);
    using Bits = typename F::Bits;
    if (!F::kFloat) return;
    auto* bytes = static_cast<std::byte*>(data);
    const Bits canonical = F::kMagnitude;
    for (int64_t i = 0; i < count; ++i) {
      if ((LoadAt<Bits>(bytes, i) & F::kMagnitude) <= F::kInfinity) continue;
      std::memcpy(bytes + i * static_cast<int64_t>(sizeof(Bits)), &canonical, sizeof(Bits));
    }
  });
}

}  // namespace rlk::compare
